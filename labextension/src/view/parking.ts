// Says how far the parking of a row's process has come, and which of its actions are open. Pure.

import { ago, cut, withUnit, type Translation, type Unit } from './format';
import type { Row } from './wire';

/** Characters of a name. */
const SHOWN = 60;

/** Bytes from which on to park is worth it: less is hardly more than a CUDA context. */
const LEAST = 2 ** 28;

/** Whether a kernel of this server could be asked to park: it runs no cell, holds memory, and lets itself be parked. */
export function canPark(row: Row): boolean {
  return (
    row.parks === true &&
    row.parking === undefined &&
    row.kernel !== undefined &&
    row.pid !== undefined &&
    !row.child &&
    row.state !== 'busy' &&
    (row.held ?? 0) >= LEAST
  );
}

/** Whether a kernel of this server is parked, and can be brought back. */
export function canUnpark(row: Row): boolean {
  return row.parking === 'parked' && row.kernel !== undefined && row.pid !== undefined && !row.child;
}

/** Whether a kernel waits to come back because somebody asked for it here, and not for a cell: that is called off. */
export function canStay(row: Row): boolean {
  const here = row.kernel !== undefined && row.pid !== undefined && !row.child;
  return row.parking === 'waiting' && here && row.state !== 'busy';
}

/** What stands in place of a row's state: `parked 2 h`; an empty text where its GPU state is as usual. */
export function parkedText({ parking, since }: Row, now: number, trans: Translation): string {
  const long = since === undefined ? '' : ago(now - since, trans);
  const texts = {
    parking: trans.__('parking…'),
    parked: long ? trans.__('parked %1', long) : trans.__('parked'),
    waiting: trans.__('waits for room'),
    restoring: trans.__('comes back…'),
    failed: trans.__('GPU state lost')
  };
  return parking === undefined ? '' : texts[parking];
}

/** The sentence about it: `9.8 GiB in host memory`; an empty text where there is none. */
export function parkedDetail(row: Row, unit: Unit, trans: Translation): string {
  if (row.parking === undefined) {
    return '';
  }
  const size = withUnit(row.away, unit);
  const there = row.disk ? trans.__('%1 on disk', size) : trans.__('%1 in host memory', size);
  const sentences = {
    parking: row.disk ? trans.__('%1 go to disk', size) : trans.__('%1 go to host memory', size),
    parked: there,
    waiting: row.behind ? trans.__('%1; %2 holds most of this GPU', there, cut(row.behind, SHOWN)) : there,
    restoring: row.disk ? trans.__('%1 from disk', size) : trans.__('%1 from host memory', size),
    failed: trans.__('Its GPU state is lost: restart its kernel, which frees what it holds')
  };
  const trouble = troubleText(row, trans);
  const without =
    row.parking === 'waiting' || trouble ? trans.__('to go on without it: %tf_gpu unpark --without-gpu') : '';
  return [sentences[row.parking], trouble, without].filter(Boolean).join('; ');
}

function troubleText({ trouble }: Row, trans: Translation): string {
  if (trouble === 'gone') {
    return trans.__('its GPU is not there now');
  }
  return trouble ? trans.__('the driver does not answer') : '';
}
