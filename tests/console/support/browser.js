// Runs Debian's Chromium with playwright-core; records the errors of every page and its requests to other servers.

import {mkdirSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {join} from 'node:path';
import {ROOT} from './stack.js';

// tests/console/run has installed the packages there.
const installed = createRequire(join(ROOT, 'build/console/'));
const {chromium} = installed('playwright-core');
const AXE = readFileSync(installed.resolve('axe-core/axe.min.js'), 'utf8');
export const SCREENSHOTS = join(ROOT, 'build/tests/console');
/** What the page requests again by itself after an error. */
const POLLED = new Set(['/readyz', '/v1/leases', '/v1/nodes', '/v1/guard', '/v1/history', '/v1/history/summary',
  '/v1/rights', '/v1/resource', '/v1/changes']);

export class Browser {
  async start() {
    mkdirSync(SCREENSHOTS, {recursive: true});
    // Chromium's sandbox does not work as root; it opens only pages of the gateway.
    this.chromium = await chromium.launch({executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
      args: process.getuid() === 0 ? ['--no-sandbox'] : []});
  }

  stop() { return this.chromium.close(); }

  closePages() { return Promise.all(this.chromium.contexts().map(context => context.close())); }

  /**
   * Opens the console in a new page, signed in unless `key` is empty.
   * `expected`: patterns of console messages that are no errors.
   */
  async open(stack, {width = 1440, scale = 1, scheme = 'light', query = '', key = stack.key(), expected = []} = {}) {
    const context = await this.chromium.newContext({viewport: {width, height: 900}, deviceScaleFactor: scale,
      colorScheme: scheme, reducedMotion: 'reduce', timezoneId: 'Europe/Berlin', locale: 'en-GB'});
    context.setDefaultTimeout(30_000);
    const page = await context.newPage();
    const observed = new PageObserver(page, stack.url, expected);
    if (key) await page.addInitScript(value => { if (!sessionStorage.getItem('test_key_set')) { sessionStorage.setItem(
          'fencegate.api_key', value); sessionStorage.setItem('test_key_set', 'yes'); } }, key);
    await page.goto(`${stack.url}/console${query}`);
    if (key) await page.locator('#panels > .panel[data-state]:not([hidden], [data-state=loading])').first().waitFor();
    return {page, observed};
  }
}

/** Records the errors of a page and its requests to other servers. */
class PageObserver {
  constructor(page, origin, expected) {
    this.errors = [];
    this.externalRequests = [];
    page.on('pageerror', error => this.errors.push(error.message));
    page.on('console', message => {
      const text = message.text();
      // A gateway makes one list of leases at a time, and the request of a page that was just closed may still run.
      if (/429 \(Too Many Requests\)/.test(text)) return;
      // On a busy machine the nodes or PostgreSQL take longer to answer than the gateway waits.
      if (/503 \(Service Unavailable\)/.test(text) && POLLED.has(new URL(message.location().url, origin).pathname))
        return;
      if (['error', 'warning'].includes(message.type()) && !expected.some(pattern => pattern.test(text)))
        this.errors.push(`${text} ${message.location().url}`);
    });
    page.on('request', request => {
      if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(`${origin}/`))
        this.externalRequests.push(request.url());
    });
  }
}

export const screenshot = (page, name) => page.screenshot({path: join(SCREENSHOTS, `${name}.png`), fullPage: true});

/** The violations that axe reports, as text. */
export async function accessibilityErrors(page) {
  await page.evaluate(AXE);
  const {violations} = await page.evaluate(() =>
    globalThis.axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']}));
  return violations.flatMap(({id, nodes}) =>
    nodes.map(node => `${id}: ${node.target.join(' ')} ${node.failureSummary}`));
}

/** The width by which the page can be scrolled horizontally, in pixels. */
export const horizontalOverflow = page =>
  page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
