// Finds lines in a text, each where it stands whole. Pure.

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
