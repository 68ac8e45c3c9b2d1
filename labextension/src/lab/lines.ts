// The lines that an answer offers: where each stands in its text, and in a cell in place of another. Pure.

/** A place in a text. */
export interface Place {
  start: number;
  line: string;
}

/**
 * The places of lines in a text, in order. A line that begins another is found where it stands alone:
 * what follows it is the end, two spaces, or punctuation that ends it.
 */
export function places(text: string, lines: readonly string[]): Place[] {
  const found: Place[] = [];
  for (const line of lines) {
    for (let start = text.indexOf(line); start >= 0; start = text.indexOf(line, start + line.length)) {
      if (
        /^(?:$|\n|\r| {2}|[,.)](?:\s|$))/.test(text.slice(start + line.length)) &&
        !followed(text, start, line, lines)
      ) {
        found.push({ start, line });
      }
    }
  }
  return found.sort((a, b) => a.start - b.start);
}

/** Whether a longer line stands at the same place. */
function followed(text: string, start: number, line: string, lines: readonly string[]): boolean {
  return lines.some(other => other.length > line.length && text.startsWith(other, start));
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
