// Delivers numbered items in order and exactly once: old items are dropped, missing items are read first.

const RETRY_MS = 1000;

export class Sequence {
  /** `read(after)` returns the items after a number, in order; `deliver(item)` gets each item once. */
  constructor({ read, numberOf, deliver, first = null }) {
    this.last = first;
    this._read = read;
    this._numberOf = numberOf;
    this._deliver = deliver;
    this._waiting = [];
    this._reading = false;
  }

  /** Accepts an item in any order. If the item is more than `far` ahead, skips to it and calls `skipped`. */
  offer(item, far = Infinity, skipped = () => {}) {
    const number = this._numberOf(item);
    if (this._reading) {
      this._waiting.push(item);
    } else if (this.last === null || number === this.last + 1) {
      this._pass(item);
    } else if (number > this.last + far) {
      this.last = number;
      skipped(number);
    } else if (number > this.last) {
      this._waiting.push(item);
      this.catchUp();
    }
  }

  /** Reads the missing items, then delivers the items that arrived meanwhile. */
  async catchUp() {
    if (this._reading) return;
    this._reading = true;
    try {
      do {
        await this._readOn();
      } while (this._lacks());
    } catch (error) {
      // The missing items are still missing: delivering later items would hide the gap.
      if (error.status === 0 || error.status >= 500) setTimeout(() => this.catchUp(), RETRY_MS);
      else this._waiting = [];
    } finally {
      this._reading = false;
    }
  }

  async _readOn() {
    // Items that arrived before this read: a gap that the read leaves before them is permanent.
    const arrived = this._waiting.splice(0);
    for (;;) {
      const page = await this._read(this.last ?? 0);
      if (!page.length) break;
      for (const item of page) this._pass(item);
    }
    for (const item of arrived) this._pass(item);
  }

  /** Delivers what it can of the waiting items. Returns whether items before the rest are missing. */
  _lacks() {
    while (this._waiting.length && this._numberOf(this._waiting[0]) <= (this.last ?? 0) + 1) {
      this._pass(this._waiting.shift());
    }
    return this._waiting.length > 0;
  }

  _pass(item) {
    const number = this._numberOf(item);
    if (this.last !== null && number <= this.last) return;
    this.last = number;
    this._deliver(item);
  }
}
