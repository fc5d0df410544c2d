#include "tools/graph/graph_page.h"

namespace levin::tools {

const char* const kPageScript = R"js(
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const ops = data.operators, count = (ops.phase || []).length;
const PHASES = ['forward', 'backward', 'update'];
const KINDS = [['parameters', 'parameters'], ['state', 'optimizer and buffers'],
  ['inputs', 'inputs'], ['gradients', 'gradients'], ['values', 'values']];
const byId = id => document.getElementById(id);
const clean = text => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;');

function units(number, unit) {
  if (!number) return '0 ' + unit;
  const names = ['n', 'µ', 'm', '', 'k', 'M', 'G', 'T', 'P', 'E'];
  let power = Math.floor(Math.log10(number) / 3 + 1e-9);
  if (number / 1000 ** power >= 999.5) ++power;
  power = Math.max(-3, Math.min(6, power));
  const scaled = number / 1000 ** power;
  const digits = scaled >= 99.95 || (power === 0 && Number.isInteger(scaled)) ? 0
    : scaled >= 9.995 ? 1 : 2;
  return (scaled.toFixed(digits) + ' ' + names[power + 3] + unit).trim();
}

function element(parent, tag, className, html) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (html !== undefined) made.innerHTML = html;
  parent.append(made);
  return made;
}

// The tree of modules, with the sums of all that lies below.
const root = {name: data.title, children: new Map(), own: [], all: [], parent: null,
  operators: 0, flops: 0, bytes: 0, seconds: [0, 0, 0]};

function moduleAt(path) {
  let node = root;
  for (const part of path === '' ? [] : path.split('.')) {
    if (!node.children.has(part)) {
      node.children.set(part, {name: part, children: new Map(), own: [], all: [], parent: node,
        operators: 0, flops: 0, bytes: 0, seconds: [0, 0, 0]});
    }
    node = node.children.get(part);
  }
  return node;
}

const owners = data.modules.map(moduleAt);
for (let i = 0; i < count; ++i) {
  owners[ops.module[i]].own.push(i);
  for (let node = owners[ops.module[i]]; node; node = node.parent) {
    node.all.push(i);
    node.operators += 1 - ops.view[i];
    node.flops += ops.flops[i];
    node.bytes += ops.bytes[i];
    node.seconds[ops.phase[i]] += ops.seconds[i];
  }
}

// The layers that the chart stacks, from below.
const held = data.held, heldBytes = held.parameters + held.state + held.inputs;
function stackAt(i) {
  const rest = Math.max(0, ops.memory[i] - heldBytes);
  const gradients = Math.min(rest, ops.gradients[i]);
  return [held.parameters, held.state, held.inputs, gradients, rest - gradients];
}

let peakAt = 0;
for (let i = 0; i < count; ++i) if (ops.memory[i] > ops.memory[peakAt]) peakAt = i;

/// Runs of neighbours for which the key is the same: [begin, end, key].
function stretches(indices, keyOf) {
  const found = [];
  for (const i of indices) {
    const last = found[found.length - 1], key = keyOf(i);
    if (last && last[1] === i && last[2] === key) last[1] = i + 1;
    else found.push([i, i + 1, key]);
  }
  return found;
}

const LEFT = 64, RIGHT = 8, TOP = 24, HEIGHT = 300, BOTTOM = 34;
let marked = null, chosen = -1, width = 0;
const xOf = i => LEFT + (width - LEFT - RIGHT) * i / Math.max(1, count);
const ceiling = Math.max(1, data.totals.peak) * 1.1;
const yOf = bytes => TOP + (HEIGHT - TOP - BOTTOM) * (1 - bytes / ceiling);
const rect = (begin, end, y, height, style) => `<rect x="${xOf(begin).toFixed(1)}" y="${y}" ` +
  `width="${Math.max(1, xOf(end) - xOf(begin)).toFixed(1)}" height="${height}" ${style}/>`;
const upright = (x, style) => `<line x1="${x.toFixed(1)}" x2="${x.toFixed(1)}" y1="${TOP}" ` +
  `y2="${HEIGHT - BOTTOM}" ${style}/>`;

function gridOf(className, withText) {
  let step = 10 ** Math.floor(Math.log10(ceiling / 4));
  while (ceiling / step > 6) step *= step.toString()[0] === '2' ? 2.5 : 2;
  let svg = '';
  for (let bytes = 0; bytes <= ceiling; bytes += step) {
    const y = yOf(bytes).toFixed(1);
    svg += `<line class="${className}" x1="${LEFT}" x2="${width - RIGHT}" y1="${y}" y2="${y}"/>`;
    if (withText) {
      svg += `<text x="${LEFT - 8}" y="${+y + 4}" text-anchor="end">${units(bytes, 'B')}</text>`;
    }
  }
  return svg;
}

function areas() {
  const upper = KINDS.map(() => []), lower = KINDS.map(() => []);
  for (let i = 0; i < count; ++i) {
    const from = xOf(i).toFixed(1), to = xOf(i + 1).toFixed(1);
    let sum = 0;
    stackAt(i).forEach((bytes, kind) => {
      const low = yOf(sum).toFixed(1), high = yOf(sum += bytes).toFixed(1);
      upper[kind].push(`${from},${high} ${to},${high}`);
      lower[kind].push(`${to},${low} ${from},${low}`);
    });
  }
  return KINDS.map(([kind], k) => `<polygon fill="var(--${kind})" points="` +
    upper[k].join(' ') + ' ' + lower[k].reverse().join(' ') + '"/>').join('');
}

function phaseBands() {
  let svg = '';
  const all = Array.from({length: count}, (_, i) => i);
  for (const [begin, end, phase] of stretches(all, i => ops.phase[i])) {
    const name = PHASES[phase];
    svg += rect(begin, end, TOP, HEIGHT - TOP - BOTTOM,
      `fill="var(--${name})" fill-opacity="0.08"`);
    svg += rect(begin, end, HEIGHT - BOTTOM + 3, 4, `fill="var(--${name})"`);
    if (begin > 0) svg += upright(xOf(begin), 'class="phase-edge"');
    if (xOf(end) - xOf(begin) > 56) {
      svg += `<text x="${xOf(begin) + 4}" y="${HEIGHT - 10}">${name}</text>`;
    }
  }
  return svg;
}

function peakMark() {
  const x = xOf(peakAt + 0.5), isRight = x > width * 0.7;
  return upright(x, 'class="peak" stroke-dasharray="1 3"') +
    `<text class="peak-text" x="${x + (isRight ? -6 : 6)}" y="${TOP - 8}" ` +
    `text-anchor="${isRight ? 'end' : 'start'}">peak ${units(data.totals.peak, 'B')}, ` +
    `${clean(ops.target[peakAt])}</text>`;
}

function marks() {
  let svg = '';
  for (const [begin, end] of marked ? stretches(marked.all, () => 0) : []) {
    svg += rect(begin, end, TOP, HEIGHT - TOP - BOTTOM, 'class="veil"');
    svg += rect(begin, end, TOP - 4, 4, 'class="stretch"');
  }
  return svg + (chosen < 0 ? '' : upright(xOf(chosen + 0.5), 'class="chosen"'));
}

function draw() {
  width = byId('chart').clientWidth;
  if (count === 0) return;
  byId('chart').innerHTML = `<svg height="${HEIGHT}" viewBox="0 0 ${width} ${HEIGHT}" role="img" ` +
    `aria-label="memory by operator">${gridOf('grid', true)}${phaseBands()}${areas()}` +
    `${gridOf('over', false)}${peakMark()}<g id="marks"></g><g id="pointer"></g></svg>`;
  byId('marks').innerHTML = marks();
}

const phaseOf = i => PHASES[ops.phase[i]];
const moduleName = i => data.modules[ops.module[i]] || 'no module of its own';
function read(i) {
  const parts = stackAt(i).map((bytes, k) => bytes ? `${KINDS[k][1]} ${units(bytes, 'B')}` : '');
  byId('readout').innerHTML = `<b>${units(ops.memory[i], 'B')}</b> at operator ${i + 1} of ` +
    `${count}, <code>${clean(ops.name[i])} = ${clean(ops.target[i])}</code>, ` +
    `${clean(moduleName(i))}, <span class="${phaseOf(i)}">${phaseOf(i)}</span>` +
    `<br><span class="quiet">${parts.filter(Boolean).join(', ')}</span>`;
}
)js"
                                R"js(
// The rows. Those of a module are made when it is first unfolded.
function shareBar(seconds, total) {
  const parts = seconds.map((s, phase) =>
    `<i class="${PHASES[phase]}" style="width:${(100 * s / total).toFixed(2)}%"></i>`);
  const sum = seconds.reduce((a, b) => a + b, 0);
  return `<span class="share">${parts.join('')}</span>${(100 * sum / total).toFixed(1)} %`;
}

function choose(row, show) {
  document.querySelectorAll('.marked').forEach(other => other.classList.remove('marked'));
  row.classList.add('marked');
  show();
  byId('marks').innerHTML = marks();
}

function onPress(row, action) {
  row.tabIndex = 0;
  row.addEventListener('click', action);
  row.addEventListener('keydown', event => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    action();
  });
}

const total = Math.max(data.totals.seconds, 1e-30);
function addModule(parent, node, depth) {
  const row = element(parent, 'div', 'row module');
  const name = element(row, 'span', '', '<span class="sign">+</span>' + clean(node.name));
  name.style.paddingLeft = depth * 20 + 'px';
  element(row, 'span', '', node.operators);
  element(row, 'span', '', units(node.flops, 'FLOP'));
  element(row, 'span', '', units(node.bytes, 'B'));
  element(row, 'span', '', units(node.seconds.reduce((a, b) => a + b, 0), 's'));
  element(row, 'span', '', shareBar(node.seconds, total));
  const below = element(parent, 'div');
  below.hidden = true;
  row.setAttribute('aria-expanded', 'false');
  node.unfold = open => {
    if (open && !below.firstChild) {
      for (const child of node.children.values()) addModule(below, child, depth + 1);
      for (const i of node.own) addOperator(below, i, depth + 1);
    }
    below.hidden = !open;
    row.setAttribute('aria-expanded', String(open));
    row.querySelector('.sign').textContent = open ? '−' : '+';
  };
  onPress(row, () => {
    node.unfold(below.hidden);
    choose(row, () => { marked = node; chosen = -1; });
  });
}

function addOperator(parent, i, depth) {
  const row = element(parent, 'div', 'row operator' + (ops.view[i] ? ' view' : ''));
  const name = element(row, 'span', 'mono', `<span class="number">${i + 1}</span>` +
    `${clean(ops.target[i])} <span class="quiet">${clean(ops.name[i])} : ` +
    `${clean(ops.type[i])}</span>`);
  name.style.paddingLeft = depth * 20 + 'px';
  element(row, 'span', 'chip ' + phaseOf(i), phaseOf(i));
  element(row, 'span', '', ops.view[i] ? 'a view' : units(ops.flops[i], 'FLOP'));
  element(row, 'span', '', ops.view[i] ? '' : units(ops.bytes[i], 'B'));
  element(row, 'span', '', ops.view[i] ? '' : units(ops.seconds[i], 's'));
  const seconds = [0, 0, 0];
  seconds[ops.phase[i]] = ops.seconds[i];
  element(row, 'span', '', ops.view[i] ? '' : shareBar(seconds, total));
  row.id = 'operator-' + i;
  onPress(row, () => {
    const line = row.nextSibling;
    if (line && line.className === 'line mono') line.remove();
    else row.insertAdjacentHTML('afterend', `<div class="line mono">${clean(ops.line[i])}</div>`);
    choose(row, () => { chosen = i; read(i); });
  });
}

function jumpTo(i) {
  const path = [];
  for (let node = owners[ops.module[i]]; node; node = node.parent) path.unshift(node);
  for (const node of path) node.unfold(true);
  const row = byId('operator-' + i);
  choose(row, () => { chosen = i; });
  row.scrollIntoView({block: 'center'});
}

function operatorAt(event) {
  const x = event.clientX - byId('chart').getBoundingClientRect().left;
  const i = Math.floor((x - LEFT) / (width - LEFT - RIGHT) * count);
  return Math.max(0, Math.min(count - 1, i));
}

function start() {
  document.querySelector('h1').textContent = data.title;
  byId('about').textContent = 'One training step, with roofline times of ' + data.device +
    '. Written by levin graph.';
  const totals = data.totals;
  for (const [name, text] of [['parameters', units(totals.parameters, '')],
    ['operators', `${totals.operators} and ${count - totals.operators} views`],
    ['arithmetic', units(totals.flops, 'FLOP')], ['memory moved', units(totals.bytes, 'B')],
    ['time at best', units(totals.seconds, 's')], ['peak of memory', units(totals.peak, 'B')]]) {
    element(element(byId('totals'), 'div'), 'dt', '', name).after(
      Object.assign(document.createElement('dd'), {textContent: text}));
  }
  for (const [kind, text] of KINDS) {
    element(byId('kinds'), 'span', '', `<i style="background:var(--${kind})"></i>${text}`);
  }
  for (const phase of PHASES) {
    element(byId('phases'), 'span', '', `<i style="background:var(--${phase})"></i>${phase}`);
  }
  addModule(byId('tree'), root, 0);
  root.unfold(true);
  for (let node = root; node.children.size === 1;) {
    node = node.children.values().next().value;
    node.unfold(true);
  }
  if (count === 0) return;
  draw();
  read(peakAt);
  byId('chart').addEventListener('mousemove', event => {
    const i = operatorAt(event);
    read(i);
    byId('pointer').innerHTML = upright(xOf(i + 0.5), 'class="pointer"');
  });
  byId('chart').addEventListener('mouseleave', () => {
    byId('pointer').innerHTML = '';
    read(chosen < 0 ? peakAt : chosen);
  });
  byId('chart').addEventListener('click', event => jumpTo(operatorAt(event)));
  window.addEventListener('resize', draw);
}

start();
)js";

}  // namespace levin::tools
