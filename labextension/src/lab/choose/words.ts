// A choice made by hand, and the words of the magic for it. Pure.

/** The line that says words: to every framework, where each can be asked them. */
export function line(text: string): string {
  return `${/\bsplit\b/.test(text) ? '%tf_gpu' : '%gpu'} ${text}`;
}

export const LOAD = '%load_ext tfgpu_magic';

/** In place of a GPU's label: all GPUs, and the one with most free memory. */
export const ALL = 'all';
export const PICK = 'pick';

/** How memory is taken: as it is needed, up to a limit, or all that is free, as without a policy. */
export type Memory = 'growth' | 'limit' | 'everything';

export type Unit = 'GiB' | '%';

export interface Choice {
  /** A GPU's label, `ALL` or `PICK`. */
  gpu: string;
  memory: Memory;
  amount: number;
  unit: Unit;
  /** Whether the limit is a cap that memory grows into. */
  grow: boolean;
  /** Whether growth gives back what is not in use. */
  release: boolean;
}

/** What is asked in the kernel already. */
export interface Asked {
  policy: string;
  /** Whether that chooses GPUs. */
  chooses: boolean;
}

/** Return the words that ask for a choice, whatever was asked before. */
export function words(choice: Choice, asked: Asked): string {
  const { gpu, memory, amount, unit, grow, release } = choice;
  const size = `${amount}${unit}`;
  const drops = memory === 'everything' && asked.policy !== '';
  const parts = drops ? ['default'] : [];
  if (gpu === PICK) {
    parts.push(memory === 'limit' ? `pick --need ${size}` : 'pick');
  } else if (gpu !== ALL) {
    parts.push(`visible ${gpu}`);
  } else if (asked.chooses && !drops) {
    parts.push('visible all');
  }
  if (memory === 'growth') {
    parts.push(`growth${release ? ' --release' : ''}`);
  } else if (memory === 'limit') {
    parts.push(`limit ${size}${grow ? ' --grow' : ''}`);
  }
  return parts.join('; ') || 'default';
}

const PART =
  /^(?:(?<default>default)|(?<all>visible all)|visible (?<gpu>\d+(?:\.\d+)?)|(?<pick>pick)(?: --need (?:\d+(?:\.\d+)?)(?:GiB|%))?|(?<growth>growth)(?<release> --release)?|limit (?<amount>\d+(?:\.\d+)?)(?<unit>GiB|%)(?<grow> --grow)?)$/;

/** Return the choice that words ask for; null where it is none that can be made by hand. */
export function read(text: string, usual: Choice): Choice | null {
  const choice: Choice = { ...usual, gpu: ALL, memory: 'everything', grow: false, release: false };
  for (const part of text ? text.split('; ') : []) {
    const found = PART.exec(part)?.groups;
    if (!found) {
      return null;
    }
    if (found['gpu'] ?? found['pick'] ?? found['all']) {
      choice.gpu = found['gpu'] ?? (found['pick'] ? PICK : ALL);
    } else if (found['growth']) {
      Object.assign(choice, { memory: 'growth', release: !!found['release'] });
    } else if (found['amount']) {
      Object.assign(choice, { memory: 'limit', amount: +found['amount'], unit: found['unit'], grow: !!found['grow'] });
    }
  }
  return choice;
}

/** The cell that asks for it in a notebook that is run anew. */
export function cell(text: string): string {
  return `${LOAD}\n${line(text)}`;
}

/** Whether a cell is one that `cell` made, so that another choice takes its place. */
export function isCell(source: string): boolean {
  const [first, second, ...rest] = source.trim().split('\n');
  return first === LOAD && /^%(tf_)?gpu /.test(second ?? '') && !rest.length;
}

/**
 * Return a cell's source with a line in place of the first one that says `old`; null where none does. One that stands
 * above a cell comes in place of such a line, or first.
 *
 * Spaces do not count, and the magic's sign may be left out, as IPython lets it.
 */
export function replaced(source: string, old: string, line: string): string | null {
  const plain = (text: string): string => text.trim().replace(/^%/, '').replace(/\s+/g, ' ');
  const above = line.startsWith('%%');
  const lines = source.split('\n');
  const place = lines.findIndex(one =>
    above ? /^%%(tf_)?gpu\s+isolate\b/.test(one) : old && plain(one) === plain(old)
  );
  if (place < 0) {
    return above ? `${line}\n${source}` : null;
  }
  lines[place] = /^\s*/.exec(lines[place]!)![0] + line;
  return lines.join('\n');
}
