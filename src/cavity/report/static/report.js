
(function () {
  "use strict";
  var list = function (selector, from) { return Array.prototype.slice.call((from || document).querySelectorAll(selector)); };

  // tooltips
  var tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.appendChild(tip);
  list("svg title").forEach(function (title) {
    title.parentNode.setAttribute("data-tip", title.textContent);
    title.parentNode.removeChild(title);
  });
  function show(event) {
    var mark = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !mark;
    if (!mark) { return; }
    tip.textContent = mark.getAttribute("data-tip");
    var box = mark.getBoundingClientRect(), room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    tip.style.left = Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, room)) + "px";
    tip.style.top = Math.max(8, box.top - tip.offsetHeight - 8) + "px";
  }
  document.addEventListener("pointerover", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("scroll", function () { tip.hidden = true; }, { passive: true });

  // sortable tables
  function key(row, place) {
    var text = row.cells[place].textContent.trim(), number = parseFloat(text.replace(/,/g, ""));
    return /^[-+]?[0-9.]/.test(text) && !isNaN(number) ? number : text.toLowerCase();
  }
  list("table.sortable").forEach(function (table) {
    list("thead th", table).forEach(function (head, place) {
      var button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.textContent = "";
      head.appendChild(button);
      button.addEventListener("click", function () {
        var up = head.getAttribute("aria-sort") !== "ascending";
        list("thead th", table).forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        list("tbody tr", table).sort(function (a, b) {
          var one = key(a, place), two = key(b, place);
          if (typeof one !== typeof two) { return typeof one === "number" ? -1 : 1; }
          return (one < two ? -1 : one > two ? 1 : 0) * (up ? 1 : -1);
        }).forEach(function (row) { table.tBodies[0].appendChild(row); });
      });
    });
  });

  // a link opens a folded section; printing opens all of them
  function unfold() {
    var part = location.hash.length > 1 ? document.getElementById(location.hash.slice(1)) : null;
    if (part) { list("details", part).forEach(function (fold) { fold.open = true; }); }
  }
  window.addEventListener("hashchange", unfold);
  unfold();
  window.addEventListener("beforeprint", function () {
    list("details").forEach(function (fold) { fold.open = true; });
  });
})();
