// Makes lines of a drawn text into buttons, in place: the text reads as before.

export interface Means {
  /** What a button does, in words. */
  describe: (line: string) => string;
  take: (line: string) => void;
}

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

/** Make buttons of the lines in an element's text, where they are none yet. */
export function link(element: HTMLElement, lines: readonly string[], { describe, take }: Means): void {
  if (element.querySelector('.tfgpu-offer')) {
    return;
  }
  // From the last on, so that the places of those before stay as they are.
  for (const { start, line } of places(element.textContent, lines).reverse()) {
    const range = document.createRange();
    const [first, last] = [at(element, start), at(element, start + line.length)];
    if (!first || !last) {
      continue;
    }
    range.setStart(...first);
    range.setEnd(...last);
    range.deleteContents();
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'tfgpu-offer';
    button.textContent = line;
    button.title = describe(line);
    button.dataset['lmSuppressShortcuts'] = 'true'; // Enter presses it, and does not edit the cell
    button.addEventListener('click', () => take(line));
    range.insertNode(button);
  }
}

/** The text node that has a character, and the character's place in it. */
function at(element: HTMLElement, place: number): [Text, number] | null {
  const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  let left = place;
  while (walker.nextNode()) {
    const text = walker.currentNode as Text;
    if (left <= text.length) {
      return [text, left];
    }
    left -= text.length;
  }
  return null;
}
