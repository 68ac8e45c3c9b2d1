// The promises of the stream: what it makes of messages, and when it connects, with a world made up.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Stream } from '../src/lab/stream';
import type { Link } from '../src/view/store';
import { VERSION } from '../src/view/wire';
import { ENGLISH } from '../src/view/format';
import { FakeNetwork, full } from './fakes';
import { GIB, state } from './make';

function reason(link: Link): string {
  return link.kind === 'refused' ? link.reason : '';
}

function looking(): { network: FakeNetwork; stream: Stream } {
  const network = new FakeNetwork();
  const stream = new Stream(network, ENGLISH);
  stream.want('panel', 'processes');
  return { network, stream };
}

test('without anybody who looks there is no connection', () => {
  const network = new FakeNetwork();
  const stream = new Stream(network, ENGLISH);
  stream.setHidden(false);

  assert.equal(network.sockets.length, 0);
  stream.want('panel', 'processes');
  stream.want('status bar', 'memory');
  assert.equal(network.sockets.length, 1);
  stream.want('panel', false);
  assert.equal(network.last.closed, false);
  stream.want('status bar', false);
  assert.equal(network.last.closed, true);
});

test('a tick turns the state that it is for into the next', () => {
  const { network, stream } = looking();
  let told = 0;
  stream.subscribe(() => (told += 1));

  network.last.say(full());
  assert.deepEqual(network.last.sent, []); // the server takes processes for granted
  network.last.say({
    version: VERSION,
    type: 'tick',
    sequence: 2,
    base: 1,
    patch: { time: 1001, gpus: { 0: { used: 5 } } }
  });

  assert.equal(stream.state?.gpus['0']?.used, 5);
  assert.deepEqual(stream.link, { kind: 'live', every: 1 });
  assert.deepEqual(stream.history.of(600).times, [999, 1000, 1001]);
  assert.deepEqual(stream.history.of(600).series.used.get('GPU-0'), [1, 10 * GIB, 5]);
  assert.equal(told, 2);
});

test('a tick for another state, and nonsense, lead to a new connection', () => {
  for (const message of [{ version: VERSION, type: 'tick', sequence: 9, base: 8, patch: {} }, '{', 'null']) {
    const { network, stream } = looking();
    network.last.say(full());

    network.last.say(message);
    assert.equal(network.last.closed, true);
    network.pass();
    network.last.say(full(9));

    assert.equal(network.sockets.length, 2);
    assert.equal(stream.link.kind, 'live');
  }
});

test('a lost connection keeps the state, and waits longer each time until a message comes', async () => {
  const { network, stream } = looking();
  network.last.say(full());
  const waits: number[] = [];
  for (let time = 0; time < 8; time += 1) {
    network.last.onclose?.();
    await Promise.resolve();
    assert.equal(stream.link.kind, 'lost');
    waits.push(network.timers[0]!.milliseconds);
    network.pass();
  }

  assert.deepEqual(waits, [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
  assert.equal(stream.state?.time, 1000);
  network.last.say(full());
  network.last.onclose?.();
  assert.equal(network.timers[0]!.milliseconds, 1000);
});

test('a server that says no is understood, and asked again in minutes', async () => {
  for (const [answer, words] of [
    ['not there', /not enabled or failed to load/],
    ['not allowed', /not allow/],
    ['not logged in', /not logged in .* reload/]
  ] as const) {
    const { network, stream } = looking();
    network.answer = answer;

    network.last.onclose?.();
    await new Promise(setImmediate);

    assert.match(reason(stream.link), words);
    assert.deepEqual(
      network.timers.map(timer => timer.milliseconds),
      [300_000]
    );
    network.pass();
    network.last.say(full());
    assert.equal(stream.link.kind, 'live');
  }
});

test('another version asks to reload, and is asked again in minutes', () => {
  const { network, stream } = looking();

  network.last.say({ version: VERSION + 1, type: 'full' });

  assert.match(reason(stream.link), /reload/);
  assert.equal(network.last.closed, true);
  assert.deepEqual(
    network.timers.map(timer => timer.milliseconds),
    [300_000]
  );
});

test('an answer that comes when nobody looks any more changes nothing', async () => {
  const { network, stream } = looking();
  network.answer = 'not allowed';
  network.last.onclose?.();
  stream.want('panel', false);
  await new Promise(setImmediate);

  assert.deepEqual([stream.link.kind, network.timers.length], ['connecting', 0]);
});

test('the pace that the server grants is said, and how long it may be silent follows from that', () => {
  for (const [every, silence] of [
    [1, 10_000],
    [5, 15_000],
    [60, 180_000]
  ] as const) {
    const { network, stream } = looking();

    network.last.say(full(1, state(), { every }));

    assert.deepEqual(stream.link, { kind: 'live', every });
    assert.deepEqual(
      network.timers.map(timer => timer.milliseconds),
      [silence]
    );
  }
});

test('a page that nobody sees has no connection, and has one when it is seen again', () => {
  const { network, stream } = looking();
  network.last.say(full());

  stream.setHidden(true);
  assert.equal(network.last.closed, true);
  assert.equal(network.timers.length, 0);
  stream.setHidden(false);
  assert.equal(network.sockets.length, 2);
  assert.equal(stream.link.kind, 'lost');
  network.last.say(full(5));
  assert.equal(stream.link.kind, 'live');
});

test('a connection that falls silent is made anew', () => {
  const { network } = looking();
  network.last.say(full());

  network.pass();

  assert.equal(network.sockets.length, 2);
  assert.equal(network.sockets[0]?.closed, true);
});

test('the server hears whether processes are looked at or memory alone, once each time, on every connection', () => {
  const network = new FakeNetwork();
  const stream = new Stream(network, ENGLISH);
  stream.want('status bar', 'memory');
  assert.deepEqual(network.last.sent, []); // a connection takes words once it is open
  network.last.say(full());
  network.last.say(full(2));
  stream.want('panel', 'processes');
  stream.want('table', 'processes');
  stream.want('panel', false);
  stream.want('table', false);

  assert.deepEqual(network.last.sent, [{ processes: false }, { processes: true }, { processes: false }]);
  stream.reconnect();
  network.last.say(full(3));
  assert.deepEqual(network.last.sent, [{ processes: false }]);
});

test('on a machine without a GPU there is a connection only while a view is open, and a look now and then', () => {
  const network = new FakeNetwork();
  const stream = new Stream(network, ENGLISH);
  const nothing = full(1, state({ absent: true, error: 'No GPU.', gpus: {} }));
  stream.want('status bar', 'memory');
  network.last.say(nothing);
  const resting = [network.open, network.timers.map(one => one.milliseconds)];
  stream.want('panel', 'processes');
  network.last.say(nothing);
  const seen = network.open;
  stream.want('panel', false);
  network.last.say({ version: VERSION, type: 'tick', sequence: 1, base: 1, patch: { time: 1002 } });

  assert.deepEqual(resting, [0, [300_000]]);
  assert.deepEqual([seen, network.open], [1, 0]);
  network.fire(300_000);
  assert.equal(network.open, 1);
});
