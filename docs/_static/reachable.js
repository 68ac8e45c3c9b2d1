// What the theme leaves out for those who read with a keyboard or a screen reader.

function reach() {
  for (const block of document.querySelectorAll("pre, .table-wrapper")) {
    if (block.scrollWidth > block.clientWidth) {
      block.setAttribute("tabindex", "0"); // else a keyboard cannot scroll it
    } else {
      block.removeAttribute("tabindex");
    }
  }
}

document.addEventListener("DOMContentLoaded", () => {
  for (const caption of document.querySelectorAll('.caption[role="heading"]')) {
    caption.setAttribute("aria-level", "2");
  }
  reach();
  addEventListener("resize", reach);
});
