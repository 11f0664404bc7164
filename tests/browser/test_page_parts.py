"""The parts of the live stream: items in any order are delivered once."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

MODULES = "/static/js"

# A log that grows while tabs are told of it: late, twice, not at all, and while they read. Each schedule is
# another seed; what is wrong comes back as text.
SCHEDULES = """async ({modules, seeds}) => {
  const {Sequence} = await import(`${modules}/sequence.js`);
  const wrong = [];
  for (let seed = 1; seed <= seeds; seed += 1) {
    let state = seed * 2654435761 % 4294967296;
    const random = (below) => {
      state = (state * 1664525 + 1013904223) % 4294967296;
      return Math.floor(state / 4294967296 * below);
    };
    const log = [];
    const got = [];
    let reads = 0;
    const sequence = new Sequence({
      first: 0,
      numberOf: (item) => item.number,
      deliver: (item) => got.push(item.number),
      read: async (after) => {
        reads += 1;
        for (let turn = random(4); turn > 0; turn -= 1) await null;
        return log.slice(after, after + 1 + random(5));
      },
    });
    const told = [];
    for (let step = 0; step < 60; step += 1) {
      if (random(3)) {
        log.push({number: log.length + 1});
        if (random(4)) told.push(log.at(-1));
      }
      if (told.length && random(2)) sequence.offer(random(5) ? told.shift() : told[0]);
      if (random(3) === 0) await null;
      if (random(9) === 0 && log.length) sequence.offer(log[random(log.length)]);
    }
    log.push({number: log.length + 1});
    sequence.offer(log.at(-1));
    for (let turn = 0; turn < 4000 && got.length < log.length; turn += 1) await null;
    const expected = log.map((item) => item.number).join();
    if (got.join() !== expected) wrong.push(`seed ${seed}: ${got.join()}`);
    if (!reads) wrong.push(`seed ${seed}: nothing was ever missing`);
  }
  return wrong;
}"""

FRAMES = """async ({modules, pieces}) => {
  const {parser} = await import(`${modules}/sse.js`);
  const frames = [];
  const parse = parser((frame) => frames.push(frame));
  for (const piece of pieces) parse(piece);
  return frames;
}"""

TEXT = (
    ': still here\n\nretry: 1000\nid: 7\n\nid: 8\nevent: plan.moved\ndata: {"a": 1}\n\n'
    "event: output\r\ndata: one\r\ndata: two\r\n\r\ndata:bare\n\n"
)
EXPECTED = [
    {"id": "8", "event": "plan.moved", "data": '{"a": 1}'},
    {"id": None, "event": "output", "data": "one\ntwo"},
    {"id": None, "event": "message", "data": "bare"},
]


def test_late_duplicate_and_lost_items_are_delivered_once_and_in_order(page: Page) -> None:
    wrong: list[str] = page.evaluate(SCHEDULES, {"modules": MODULES, "seeds": 300})
    assert wrong == []


DRAWN = """async ({modules, text}) => {
  const { html, render } = await import(`${modules}/ui.js`);
  const { Prose } = await import(`${modules}/components.js`);
  const place = document.createElement("div");
  render(html`<p title=${text}>${text}<b>${[html`<i>${text}</i>`]}</b><${Prose} text=${text} /></p>`, place);
  const [paragraph] = place.children;
  return [paragraph.title, paragraph.textContent];
}"""
REVIEWED = """async ({modules, text}) => {
  const { html, render } = await import(`${modules}/ui.js`);
  const { FileDiff } = await import(`${modules}/plan/diff_file.js`);
  const lines = [{ kind: "add", old: null, new: 1, text }];
  const file = { path: text, change: "created", added: 1, removed: 0, hunks: [{ header: "@@", lines }] };
  const place = document.createElement("div");
  for (const sides of [false, true]) {
    const given = { file, index: 0, sides, may: false, asking: {}, talk: {}, comments: [] };
    render(html`<${FileDiff} ...${given} />`, place);
    if (place.textContent.includes(text)) return "as it is";
  }
  return place.querySelector("td.p-text:not(.p-nothing)").textContent;
}"""


def test_direction_changing_characters_are_spelt_out(page: Page) -> None:
    """A person approves exactly the text of the diff or command that they see."""
    text = "a\u202eb\u2066c\x1bd\u05e9\te\nf\u200bg\U000e0041h\xadi"
    title, shown = page.evaluate(DRAWN, {"modules": MODULES, "text": text})
    assert title == text
    assert shown == "a\\u202eb\\u2066c\\x1bd\u05e9\te\nf\\u200bg\\U000e0041h\\xadi" * 3
    line = page.evaluate(REVIEWED, {"modules": MODULES, "text": "user\u202e"})
    assert line == "+user\\u202e"


def test_frames_are_the_same_wherever_the_connection_cuts_them(page: Page) -> None:

    def frames(pieces: list[str]) -> Any:
        return page.evaluate(FRAMES, {"modules": MODULES, "pieces": pieces})

    assert frames([TEXT]) == EXPECTED
    assert frames(list(TEXT)) == EXPECTED
    for place in range(0, len(TEXT), 7):
        assert frames([TEXT[:place], TEXT[place:]]) == EXPECTED
