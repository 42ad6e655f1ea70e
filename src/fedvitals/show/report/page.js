"use strict";
(function () {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const looks = read("looks-data");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const plots = Array.from(document.querySelectorAll(".plot"));
  const config = { displaylogo: false, responsive: true, showSendToCloud: false, showEditInChartStudio: false, showLink: false };
  const PAPER_PX = 670; // what fits between the margins of A4 and of letter
  let printing = false;

  // A narrow window has no room for long names beside the bars.
  const narrowed = (layout) => {
    if (printing || window.innerWidth > 600) return layout;
    const small = structuredClone(layout);
    small.margin = Object.assign({}, layout.margin, { l: 30, r: 8 });
    small.font = { size: 11 };
    small.title = Object.assign({}, layout.title, { font: { size: 13 } });
    return small;
  };
  const draw = (plot) => {
    const figure = read(plot.id + "-data");
    const layout = narrowed(figure.layout);
    layout.template = dark.matches && !printing ? looks.dark : looks.light;
    if (printing) Object.assign(layout, { width: PAPER_PX, autosize: false });
    plot.querySelectorAll("noscript").forEach((one) => one.remove());
    return Plotly.react(plot, figure.data, layout, config);
  };
  // One after the other: the words of the page can be read and scrolled meanwhile.
  const drawAll = () => plots.reduce((before, plot) => before.then(() => draw(plot)).then(() => new Promise((done) => setTimeout(done, 0))), Promise.resolve());

  drawAll().then(() => { document.documentElement.dataset.drawn = String(plots.length); });
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => { printing = true; plots.forEach(draw); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
})();
