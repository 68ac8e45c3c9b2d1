// Shows what is news in notifications, with what can be done about it.

import { Notification } from '@jupyterlab/apputils';
import { ago, cut, share, withUnit } from '../view/format';
import { waits } from '../view/row';
import type { Row, State } from '../view/wire';
import { Alarm, Reminder } from './alerts';
import { kernelRow, unused, type Held } from './kernel-rows';
import { Ladder, tells } from './ladder';
import type { IGpuMemory } from './tokens';

/** Characters of a name: JupyterLab shows 140 of a notification. */
const SHOWN = 60;

/** Seconds between two looks for unused memory: what is told of it is hours old. */
const CHECK_EVERY = 10;

/** What the pages of this browser share; a browser may refuse it, which is found out when it is used. */
const reminder = (): Reminder =>
  new Reminder({
    getItem: key => window.localStorage.getItem(key),
    setItem: (key, text) => window.localStorage.setItem(key, text)
  });

export class Notifications {
  constructor(private memory: IGpuMemory) {
    if (this.byServer) {
      new Ladder(memory);
    }
    memory.settings.follow(({ threshold, unused }) =>
      memory.stream.want('notifications', (threshold > 0 || (unused > 0 && !this.byServer)) && 'memory')
    );
    memory.stream.subscribe(() => {
      const { state, link } = memory.stream;
      if (state && !state.error && state.stale === undefined && link.kind === 'live') {
        this.check(state);
      }
    });
  }

  private check(state: State): void {
    const { threshold, unused: hours } = this.memory.settings.now;
    this.tellRoom(state);
    const full = this.alarm.check(state, threshold);
    if (full.length) {
      this.tellFull(full, state);
    }
    if (!this.byServer && Math.abs(state.time - this.checked) >= CHECK_EVERY) {
      this.checked = state.time;
      this.forget(state);
      const news = this.reminder.check(state, hours);
      if (news.length) {
        this.tell(news, state);
      }
    }
  }

  /** Tell of each notebook that waited for room and has it now. */
  private tellRoom(state: State): void {
    const { trans } = this.memory;
    const rows = Object.values(state.rows).filter(row => row.kernel !== undefined && row.waits !== undefined);
    for (const row of rows) {
      if (!waits(row) && this.waiting.delete(row.kernel!)) {
        const text = trans.__('%1 has the room that it waited for, and goes on', cut(row.owner, SHOWN));
        Notification.success(text, { autoClose: false });
      }
    }
    this.waiting = new Set(rows.filter(waits).map(row => row.kernel!));
  }

  private tellFull(labels: readonly string[], state: State): void {
    const { trans, settings } = this.memory;
    const lines = labels.map(label => {
      const { used, total } = state.gpus[label]!;
      const percent = Math.min(100, Math.floor((100 * used!) / total!));
      return trans.__('GPU %1 is %2% full: %3', label, percent, share(used, total, settings.now.unit));
    });
    Notification.warning(lines.join('. '), {
      autoClose: 10_000,
      actions: this.shows(trans.__('Show who holds it'))
    });
  }

  /** Tell of unused notebooks, together with those of which a notification is there. */
  private tell(news: readonly Held[], state: State): void {
    const there = [...this.shown].filter(([id]) => Notification.manager.has(id));
    const kernels = there.flatMap(([, its]) => its);
    const all = [...unused(state).filter(({ row }) => kernels.includes(row.kernel!)), ...news];
    for (const [id] of there) {
      Notification.dismiss(id);
      this.shown.delete(id);
    }
    const [only] = all.length === 1 ? all : [];
    const [text, actions] = only ? this.one(only, state.time) : this.several(all);
    const told = all.map(({ row }) => row.kernel!);
    const notToday = {
      label: this.memory.trans.__('Not Today'),
      callback: () => this.reminder.notToday(told, this.memory.stream.state?.time ?? state.time)
    };
    this.shown.set(Notification.info(text, { autoClose: false, actions: [...actions, notToday] }), told);
  }

  private one(told: Held, now: number): [string, Notification.IAction[]] {
    const { trans, settings, actions, stream } = this.memory;
    // A button may be clicked tomorrow, and the notebook may be busy by then.
    const row = (): Row => kernelRow(stream, told.row.kernel!) ?? told.row;
    const name = cut(told.row.owner, SHOWN);
    const held = withUnit(told.held, settings.now.unit);
    return [
      trans.__('%1 has held %2 for %3 without using it', name, held, ago(now - told.since, trans)),
      [
        { label: trans.__('Open'), callback: () => actions.open(row()) },
        { label: trans.__('Shut Down…'), callback: () => actions.shutDown(row()) }
      ]
    ];
  }

  /** Several notebooks have their buttons in the panel. */
  private several(told: readonly Held[]): [string, Notification.IAction[]] {
    const { trans, settings } = this.memory;
    const size = told.reduce((sum, { held }) => sum + held, 0);
    const names = told.map(({ row }) => cut(row.owner, SHOWN)).join(', ');
    const held = withUnit(size, settings.now.unit);
    return [
      trans.__('%1 notebooks hold %2 without using it: %3', told.length, held, names),
      this.shows(trans.__('Show'))
    ];
  }

  /** The button that shows the panel, where there is one. */
  private shows(label: string): Notification.IAction[] {
    const { open } = this.memory;
    return open ? [{ label, callback: open }] : [];
  }

  /** Take back what is not so any more. */
  private forget(state: State): void {
    const still = this.shown.size ? new Set(unused(state).map(({ row }) => row.kernel)) : null;
    for (const [id, kernels] of this.shown) {
      if (!kernels.some(kernel => still?.has(kernel))) {
        Notification.dismiss(id);
        this.shown.delete(id);
      }
    }
  }

  /** Whether the server tells of unused memory, and the browser's own settings do not count. */
  private byServer = tells();
  private checked = 0;
  private alarm = new Alarm();
  /** The kernels that wait for room. */
  private waiting = new Set<string>();
  private reminder = reminder();
  /** The kernels of each notification of unused memory. */
  private shown = new Map<string, string[]>();
}
