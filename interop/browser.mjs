// A person at a browser: opens a page in Chromium, signs in and agrees to whatever is asked, until the browser is led
// back to the program that asked.
//
//   node browser.mjs [--cookies <file>] [--pictures <folder>] [--decline] <url>
//
// Prints one JSON array with what each page showed, line by line; the first line is its heading. With `--cookies` it is
// known from one time to the next who is signed in; with `--pictures` each page is kept as a PNG file; with `--decline`
// the person does not agree.

import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const text = { type: "string" };
const options = { cookies: text, pictures: text, decline: { type: "boolean" } };
const { values, positionals } = parseArgs({ options, allowPositionals: true });
const [url] = positionals;
const back = new URL(url).searchParams.get("redirect_uri");

const browser = await chromium.launch({
  executablePath: "/usr/bin/chromium",
  // Nothing but the pages is fetched. The sandbox needs rights that root in a container has not.
  args: "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-component-update disable-sync"
    .split(" ")
    .map((flag) => `--${flag}`),
});
try {
  const known = values.cookies !== undefined && existsSync(values.cookies);
  const context = await browser.newContext({ storageState: known ? values.cookies : undefined });
  const page = await context.newPage();
  await page.goto(url);
  const shown = [];
  while (true) {
    shown.push((await page.innerText("body")).split(/\s*\n\s*/));
    if (values.pictures !== undefined) {
      await page.screenshot({ path: `${values.pictures}/${shown.length}.png` });
    }
    if (page.url().startsWith(back)) {
      break;
    }
    const asksWho = (await page.locator("[name=login]").count()) > 0;
    if (asksWho) {
      await page.fill("[name=login]", "ada");
      await page.fill("[name=password]", "a password");
    }
    const next = values.decline && !asksWho ? "text=Cancel" : "[type=submit]";
    // It leads to the next page, and that is waited for.
    await Promise.all([page.waitForNavigation(), page.click(next)]);
  }
  if (values.cookies !== undefined) {
    await context.storageState({ path: values.cookies });
  }
  console.log(JSON.stringify(shown));
} finally {
  await browser.close();
}
