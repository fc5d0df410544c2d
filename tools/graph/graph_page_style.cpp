#include "tools/graph/graph_page.h"

namespace levin::tools {

const char* const kPageStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fcfcfb; --ink: #1d1f21; --quiet: #6a7076; --line: #e2e3e1; --hover: #f1f2ef;
  --mark: #b3471d; --parameters: #3f5f80; --state: #7d97b0; --inputs: #b9c4cd;
  --gradients: #c4955a; --values: #7f9f86;
  --forward: #4c7d70; --backward: #a5672f; --update: #6a5b94;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #17191b; --ink: #dcdedf; --quiet: #8d9499; --line: #2d3134; --hover: #202326;
    --mark: #ef8a5c; --parameters: #5d83aa; --state: #46617c; --inputs: #37434e;
    --gradients: #a67c47; --values: #5f7f67;
    --forward: #6fa899; --backward: #cc8f55; --update: #9888c4;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1240px; padding: 32px 28px 96px; background: var(--paper);
  color: var(--ink); font: 14px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
code, .mono { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
h1 { font-size: 22px; font-weight: 600; margin: 0 0 4px; }
h2 { font-size: 15px; font-weight: 600; margin: 0; }
.quiet { color: var(--quiet); }
#totals { display: flex; flex-wrap: wrap; gap: 8px 44px; margin: 20px 0 36px; }
#totals dt { color: var(--quiet); font-size: 12.5px; }
#totals dd { margin: 0; font-size: 18px; }
.head { display: flex; flex-wrap: wrap; gap: 4px 24px; align-items: baseline; margin-bottom: 6px; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 12.5px; }
.legend i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; }
#readout { min-height: 38px; font-size: 12.5px; overflow-wrap: anywhere; }
#chart { cursor: crosshair; touch-action: manipulation; }
#chart svg { display: block; width: 100%; }
#chart text { font-size: 11.5px; fill: var(--quiet); }
#chart .grid { stroke: var(--line); }
#chart .over { stroke: var(--line); stroke-opacity: 0.7; }
#chart .phase-edge { stroke: var(--quiet); stroke-opacity: 0.5; stroke-dasharray: 2 3; }
#chart .peak { stroke: var(--ink); }
#chart .peak-text { fill: var(--ink); }
#chart .pointer, #chart .chosen { stroke: var(--mark); }
#chart .pointer { stroke-opacity: 0.6; }
#chart .stretch { fill: var(--mark); }
#chart .veil { fill: var(--mark); fill-opacity: 0.14; }
section { margin-bottom: 40px; }
.row {
  display: grid; grid-template-columns: minmax(0, 1fr) 72px 96px 78px 78px 172px; gap: 0 12px;
  padding: 3px 8px; border-bottom: 1px solid var(--line); align-items: baseline;
}
.row > * { text-align: right; white-space: nowrap; }
.row > :first-child, .row > :last-child { text-align: left; }
.row > :first-child { overflow: hidden; text-overflow: ellipsis; }
.top {
  position: sticky; top: 0; z-index: 1; background: var(--paper); color: var(--quiet);
  font-size: 12.5px;
}
.module, .operator { cursor: pointer; }
.module:hover, .operator:hover { background: var(--hover); }
.module:focus-visible, .operator:focus-visible { outline: 2px solid var(--mark); }
.module.marked, .operator.marked { background: var(--hover); box-shadow: inset 3px 0 var(--mark); }
.operator { content-visibility: auto; contain-intrinsic-height: 26px; }
.operator.view { color: var(--quiet); }
.line { padding: 4px 8px 8px 40px; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.sign { display: inline-block; width: 16px; color: var(--quiet); }
.number { display: inline-block; min-width: 44px; color: var(--quiet); }
.share { display: inline-flex; width: 110px; height: 8px; margin-right: 8px; }
.chip { font-size: 12px; }
.forward { color: var(--forward); }
.backward { color: var(--backward); }
.update { color: var(--update); }
.share i { height: 8px; background: currentColor; }
@media (max-width: 760px) {
  .row { grid-template-columns: minmax(0, 1fr) 84px 84px; }
  .row > :nth-child(2), .row > :nth-child(4), .row > :nth-child(6) { display: none; }
}
)css";

const char* const kPageBody = R"html(
<header><h1></h1><div class="quiet" id="about"></div></header>
<dl id="totals"></dl>
<section>
  <div class="head"><h2>Memory over the step</h2><div class="legend" id="kinds"></div></div>
  <div id="chart"></div>
  <div id="readout"></div>
</section>
<section>
  <div class="head"><h2>Modules</h2><div class="legend" id="phases"></div>
    <span class="legend quiet">a click unfolds a module and marks where it runs</span></div>
  <div class="row top"><span>module, operators in their order</span><span>operators</span>
    <span>arithmetic</span><span>moved</span><span>time</span><span>share of the time</span></div>
  <div id="tree"></div>
</section>
)html";

}  // namespace levin::tools
