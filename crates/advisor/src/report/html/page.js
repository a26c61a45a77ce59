"use strict";
(() => {
  // All of it can be read without this. It sorts and filters findings, copies statements, and opens everything for printing.
  const table = document.getElementById("findings-table");
  const key = (group, column) => group.rows[0].cells[column].dataset.key ?? "";
  const sort = (column, isNumber, direction) => {
    const groups = [...table.tBodies];
    const compare = isNumber
      ? (a, b) => Number(key(a, column)) - Number(key(b, column))
      : (a, b) => key(a, column).localeCompare(key(b, column));
    groups.sort((a, b) => direction * compare(a, b));
    table.append(...groups);
  };
  if (table) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const isNumber = head.dataset.sort === "number";
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = isNumber ? "descending" : "ascending";
        const other = isNumber ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        sort(column, isNumber, order === "ascending" ? 1 : -1);
      });
    });
    const filter = document.getElementById("filter");
    const filtered = document.getElementById("filtered");
    filter.closest("[hidden]").hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      const groups = [...table.tBodies];
      groups.forEach((group) => {
        group.hidden = !group.rows[0].textContent.toLowerCase().includes(wanted);
      });
      const left = groups.filter((group) => !group.hidden).length;
      filtered.textContent = wanted ? `${left} of ${groups.length}` : "";
    });
  }
  for (const code of document.querySelectorAll("pre")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-label", `Copy: ${code.getAttribute("aria-label")}`);
    button.addEventListener("click", async () => {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
      } catch {
        // A page from a file may not write to the clipboard everywhere: it is selected at least.
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    code.before(button);
  }
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    closed.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => {
    closed.forEach((details) => { details.open = false; });
  });
  // A link to a finding shows its reasons.
  const follow = () => {
    const target = location.hash.startsWith("#finding-") && document.getElementById(location.hash.slice(1));
    if (target) target.querySelector("details").open = true;
  };
  addEventListener("hashchange", follow);
  follow();
})();
