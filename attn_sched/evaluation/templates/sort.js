// Sorting by column heading; without scripts the tables stay in the plan's order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const original = [...body.rows];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const was = head.getAttribute("aria-sort");
      const next = was === "ascending" ? "descending" : was === "descending" ? null : "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (next) head.setAttribute("aria-sort", next);
      const sign = next === "descending" ? -1 : 1;
      const key = (row) => row.cells[column].dataset.sort;
      const rows = [...original];
      if (next) {
        rows.sort((a, b) => {
          if (column === 0) return sign * a.cells[0].textContent.localeCompare(b.cells[0].textContent);
          if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
          return sign * (Number(key(a)) - Number(key(b)));
        });
      }
      body.append(...rows);
    });
  });
}
// A print shows everything.
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
