// A second extension beside Herd's, for tests: a dialog that stays open until the test answers it.
// `/ask` opens one while Pi is idle; a prompt with "ask first" opens one before its run starts.

export default function asks(pi: any): void {
  pi.registerCommand("ask", {
    description: "Open a dialog",
    handler: async (_words: string, ctx: any) => void (await ctx.ui.confirm("Asked by the test", "Go on?")),
  });
  pi.on("before_agent_start", async (event: any, ctx: any) => {
    if (event.prompt?.includes("ask first")) await ctx.ui.confirm("Asked by the test", "Go on?");
  });
}
