// Debian's Chromium, driven by playwright-core; every page is watched for errors, and for requests to anywhere else.

import {mkdirSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {ROOT} from './stack.js';

// Installed by tests/console/run, outside of the tree.
const installed = createRequire(join(ROOT, 'build/console/'));
const {chromium} = installed('playwright-core');
const AXE = readFileSync(installed.resolve('axe-core/axe.min.js'), 'utf8');
export const SCREENSHOTS = join(ROOT, 'build/tests/console');

export class Browser {
  async start() {
    mkdirSync(SCREENSHOTS, {recursive: true});
    // Root has no sandbox of Chromium's; the pages are the gateway's own.
    this.chromium = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: process.getuid() === 0 ? ['--no-sandbox'] : []});
  }

  stop() { return this.chromium.close(); }

  /** A page of its own on the console, signed in unless `key` is empty. */
  async open(stack, {width = 1440, scale = 1, scheme = 'light', query = '', key = stack.key(), expected = []} = {}) {
    const context = await this.chromium.newContext({viewport: {width, height: 900}, deviceScaleFactor: scale, colorScheme: scheme, reducedMotion: 'reduce', timezoneId: 'Europe/Berlin', locale: 'en-GB'});
    context.setDefaultTimeout(10_000);
    const page = await context.newPage();
    const seen = new Seen(page, stack.url, expected);
    if (key) await page.addInitScript(value => { if (!sessionStorage.getItem('tested')) { sessionStorage.setItem('fencegate.api_key', value); sessionStorage.setItem('tested', 'yes'); } }, key);
    await page.goto(`${stack.url}/console${query}`);
    if (key) await page.locator('#leases:not([data-state=loading])').waitFor();
    return {page, seen, close: () => context.close()};
  }
}

/** What must not happen on a page. */
class Seen {
  constructor(page, home, expected) {
    this.faults = [];
    this.outside = [];
    page.on('pageerror', fault => this.faults.push(fault.message));
    page.on('console', message => {
      const text = message.text();
      // One list of leases at a time at a gateway: that of a page that was just closed may still be under way.
      if (/429 \(Too Many Requests\)/.test(text)) return;
      if (['error', 'warning'].includes(message.type()) && !expected.some(pattern => pattern.test(text))) this.faults.push(text);
    });
    page.on('request', request => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(`${home}/`)) this.outside.push(request.url());
    });
  }
}

export const screenshot = (page, name) => page.screenshot({path: join(SCREENSHOTS, `${name}.png`), fullPage: true});

/** What axe finds wrong, in words. */
export async function accessibilityFaults(page) {
  await page.evaluate(AXE);
  const {violations} = await page.evaluate(() => globalThis.axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}));
  return violations.flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.target.join(' ')} ${node.failureSummary}`));
}

/** How far the page could be scrolled sideways. */
export const sideways = page => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
