// Scripted user at a browser: opens a page in Chromium, logs in and consents, until the browser is redirected back to
// the client.
//
//   node browser.mjs [--cookies <file>] [--pictures <folder>] [--decline] <url>
//
// Prints a JSON array with the lines of each page; the first line is its heading. `--cookies` keeps the login between
// runs, `--pictures` saves each page as a PNG file, and with `--decline` the user denies consent.

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
  // No background network traffic. The sandbox needs privileges that root in a container lacks.
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
    // Wait for the navigation that the click starts.
    await Promise.all([page.waitForNavigation(), page.click(next)]);
  }
  if (values.cookies !== undefined) {
    await context.storageState({ path: values.cookies });
  }
  console.log(JSON.stringify(shown));
} finally {
  await browser.close();
}
