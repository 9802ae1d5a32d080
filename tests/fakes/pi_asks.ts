// A second extension beside Herd's, for tests: a dialog that stays open until the test answers it.
// `/ask` opens one while Pi is idle; a prompt with "ask first" opens one before its run starts. `/back` leaves
// the branch, back to before the first prompt. A prompt with "at the gate" is let through once the test has
// written into the FIFO `gate` of the folder.

import { readFile } from "node:fs/promises";

export default function asks(pi: any): void {
  pi.registerCommand("ask", {
    description: "Open a dialog",
    handler: async (_words: string, ctx: any) => void (await ctx.ui.confirm("Asked by the test", "Go on?")),
  });
  pi.registerCommand("back", {
    description: "Go back to the beginning",
    handler: async (_words: string, ctx: any) => {
      const prompt = (entry: any) => entry.type === "message" && entry.message.role === "user";
      await ctx.navigateTree(ctx.sessionManager.getEntries().find(prompt).id);
    },
  });
  pi.on("input", async (event: any, ctx: any) => {
    if (event.text.includes("at the gate")) await readFile(`${ctx.cwd}/gate`);
  });
  pi.on("before_agent_start", async (event: any, ctx: any) => {
    if (event.prompt?.includes("ask first")) await ctx.ui.confirm("Asked by the test", "Go on?");
  });
}
