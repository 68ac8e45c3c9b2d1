// A line that an answer offers, in a cell in place of another. Pure.

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
