"""The plot of scaling.py: efficiency by ranks, one panel a work, as SVG without any library."""

import math

COLOURS = ["#1f6fc4", "#d9622b"]  # one a network
DASHES = ["", "6 4"]  # one a way of reducing
INK, GREY, LINES = "#222", "#666", "#ddd"
WIDTH, HEIGHT = 860, 420
LEFT, TOP, PANEL_WIDTH, PANEL_HEIGHT, GAP = 56, 40, 360, 260, 56
MOST_RANKS_LOG2 = 10


def text(x, y, words, anchor="start", colour=INK, size=12):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-size="{size}">{words}</text>')


def line(points, colour, dash="", width=2.0):
    at = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (f'<polyline points="{at}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-dasharray="{dash}"/>')


def panel(left, title, curves, dots):
    def place(ranks, share):
        return (left + PANEL_WIDTH * math.log2(ranks) / MOST_RANKS_LOG2,
                TOP + PANEL_HEIGHT * (1 - min(share, 1.1) / 1.1))

    yield text(left, TOP - 16, title, size=14)
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = place(1, share)[1]
        yield line([(left, y), (left + PANEL_WIDTH, y)], LINES, width=1)
        yield text(left - 8, y + 4, f"{share * 100:.0f} %", "end", GREY)
    for power in range(0, MOST_RANKS_LOG2 + 1, 2):
        x, y = place(2**power, 0)
        yield text(x, y + 18, f"{2**power:,}", "middle", GREY)
    yield text(left + PANEL_WIDTH / 2, TOP + PANEL_HEIGHT + 36, "ranks", "middle", GREY)
    for (_, _, points), (colour, dash) in zip(curves, looks()):
        yield line([place(*point) for point in points], colour, dash)
    for dot in dots:
        x, y = place(*dot)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{INK}" stroke="#fff" stroke-width="1.5"/>'


def looks():
    return [(colour, dash) for colour in COLOURS for dash in DASHES]


def legend(curves, dots_are):
    y = TOP + PANEL_HEIGHT + 60
    for number, ((network, way, _), (colour, dash)) in enumerate(zip(curves, looks())):
        x, at = LEFT + 300 * (number // 2), y + 20 * (number % 2)
        yield line([(x, at), (x + 28, at)], colour, dash)
        yield text(x + 36, at + 4, f"{network}, {way}")
    yield f'<circle cx="{LEFT + 14}" cy="{y + 40}" r="4.5" fill="{INK}"/>'
    yield text(LEFT + 36, y + 44, dots_are)


def svg(panels, dots_are):
    """panels: of (title, curves, dots); a curve is (network, way, points of (ranks, share))."""
    drawn = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'font-family="sans-serif">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for number, of in enumerate(panels):
        drawn += panel(LEFT + number * (PANEL_WIDTH + GAP), *of)
    drawn += legend(panels[0][1], dots_are)
    return "\n".join([*drawn, "</svg>"]) + "\n"
