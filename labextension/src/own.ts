// Makes a notebook's view from its server's state: its own rows become "this notebook", with its own report. Pure.

import type { Row, State } from './view/wire';

/** The GPUs of a state by their UUIDs, which no two machines share; empty where they are not known. */
export function gpus(state: State | null): string {
  const all = state && !state.error ? Object.values(state.gpus).map(gpu => gpu.uuid ?? '') : [];
  return all.every(Boolean) ? all.sort().join() : '';
}

/**
 * Return a server's state with what only a kernel reports of itself.
 *
 * @param said - the kernel's own state, of any time: its policy and its notes change with its cells alone.
 * @param kernel - the kernel's id on that server.
 */
export function asSeenBy(kernel: string, said: State, server: State): State {
  const after: State = { ...server, gpus: { ...server.gpus }, rows: { ...server.rows } };
  for (const label of Object.keys(after.gpus)) {
    const { logical, policy } = (Object.hasOwn(said.gpus, label) && said.gpus[label]) || {};
    after.gpus[label] = { ...server.gpus[label]!, ...(logical && { logical }), ...(policy && { policy }) };
  }
  for (const key of Object.keys(after.rows)) {
    const row = server.rows[key]!;
    if (row.kernel === kernel && row.who === 'mine') {
      after.rows[key] = own(row);
    }
  }
  const notes = [...new Set([...(said.notes ?? []), ...(server.notes ?? [])])];
  return notes.length ? { ...after, notes } : after;
}

/** A row of the notebook itself; of a process that it started, what follows the notebook's name stays. */
function own(row: Row): Row {
  const child = (row.child && /.*('s .*)/su.exec(row.owner)?.[1]) ?? '';
  const after: Row = { ...row, who: 'this', owner: `this notebook${child}` };
  delete after.spare; // which is for other notebooks alone
  return after;
}
