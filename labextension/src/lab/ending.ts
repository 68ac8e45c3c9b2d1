// The end of a kernel, a call or a process: what a dialog says that it discards and gives back, and which were asked to end.

import { cut, withUnit, type Translation, type Unit } from '../view/format';
import { labels } from '../view/model';
import type { Store } from '../view/store';
import type { Row, State } from '../view/wire';

/** Characters of a name in a dialog. */
export const SHOWN = 100;

/** Say what ends with the kernel behind a row. */
export function ending(row: Row, state: State | null, unit: Unit, trans: Translation): string {
  const sentences = [
    row.state === 'busy' ? trans.__('It is busy.') : '',
    comesBack(row, state, unit, trans),
    trans.__('Its variables are lost.'),
    shared(row, trans)
  ];
  return sentences.filter(Boolean).join(' ');
}

/** Say what ends with a process that no server here knows, and how it is ended. */
export function endingProcess(
  row: Row,
  state: State | null,
  { unit, trans, kill }: { unit: Unit; trans: Translation; kill: boolean }
): string {
  const sentences = [
    kill ? trans.__('It was asked to end, and still runs.') : '',
    trans.__('It is process %1 of this machine, and no kernel of this server.', row.pid),
    row.state === undefined ? '' : trans.__('It is a kernel: another server may be using it.'),
    row.state === 'busy' ? trans.__('It is busy.') : '',
    comesBack(row, state, unit, trans),
    trans.__('What it has not saved is lost.')
  ];
  return sentences.filter(Boolean).join(' ');
}

/** Say what a kernel or a process gives back: `48.0 GiB on GPU 0 come back.`, or nothing where it is not known. */
function comesBack(row: Row, state: State | null, unit: Unit, trans: Translation): string {
  const held = new Map<string, number>();
  for (const other of Object.values(state?.rows ?? {})) {
    if (row.kernel === undefined ? other.pid === row.pid : other.kernel === row.kernel) {
      held.set(other.gpu, (held.get(other.gpu) ?? 0) + (other.held ?? 0));
    }
  }
  const sizes = (state ? labels(state) : [])
    .filter(label => held.get(label))
    .map(label => trans.__('%1 on GPU %2', withUnit(held.get(label), unit), label));
  return sizes.length ? trans.__('%1 come back.', sizes.join(', ')) : '';
}

/** Say who else loses a kernel's variables, or nothing where that is nobody. */
function shared(row: Row, trans: Translation): string {
  const names = (row.also ?? []).map(name => cut(name, SHOWN));
  return names.length
    ? trans.__('It is also the kernel of %1, whose variables are lost as well.', names.join(', '))
    : '';
}

/** The isolated calls and processes that were asked to stop, while they run: their pids may be reused after them. */
export class Asked {
  constructor(private store: Store) {}

  has(row: Row): boolean {
    return this.asked.has(identity(row));
  }

  /** Ask a row's process to stop. Where the server refuses or is not there, it does not count as asked. */
  async ask(row: Row, send: () => Promise<Response>): Promise<Response> {
    const answer = await send();
    if (answer.ok) {
      this.asked.add(identity(row));
      this.end ??= this.store.subscribe(this.forget);
    }
    return answer;
  }

  /** Forget those that have ended. */
  private forget = (): void => {
    const there = new Set(Object.values(this.store.state?.rows ?? {}).map(identity));
    this.asked.forEach(one => there.has(one) || this.asked.delete(one));
    if (!this.asked.size) {
      this.end?.();
      this.end = null;
    }
  };

  private asked = new Set<string>();
  private end: (() => void) | null = null;
}

/** A row's process: its pid, and when it began where that is told, since a row may be another one's at the next look. */
function identity({ pid, began }: Row): string {
  return `${pid} ${began}`;
}
