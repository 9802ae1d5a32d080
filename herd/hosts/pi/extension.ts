// Herd's extension for Pi (`herd install pi`). Written by Herd: changes are lost when it is installed again.
//
// It starts `herd session` for each session of Pi, shows Herd's tools to the model, and hands over mail from
// other sessions where Pi itself stops to think: when a run starts, and after each answer of the model with
// the results of all its tools. Nothing is put into a queue that Esc would clear. A message counts as
// delivered once the model answers a request that holds it; until then `held` has it.

import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { StringDecoder } from "node:string_decoder";
import type { ExtensionAPI, ExtensionContext } from "@earendil-works/pi-coding-agent";
import { Text } from "@earendil-works/pi-tui";

type Tool = { name: string; description: string; inputSchema: any };
type Mail = { text: string; message_ids: string[] };

const HERD: string = "@HERD@";
const ENVIRONMENT: Record<string, string> = "@ENVIRONMENT@" as any;
const TOOLS: Tool[] = "@TOOLS@" as any;

const CUSTOM = "herd";
const HELD = "SESSION_HELD";
const EVIDENCE = "pi: message_start of the answer to a context that holds it";
const READY_MS = 3_000; // a first run waits this long for a coordinator that is still starting
const ANSWER_MS = 2_000; // and any run this long for its mail
const TOOL_MS = 60_000; // peer_messages itself waits for up to 30 s
const PROMPT_MS = 10_000; // a prompt that started no run in this time was handled by somebody else
const COMPACTING_MS = 1_000; // Pi is busy without a run while it compacts; a wake looks again after this
const END_MS = 3_000; // `herd session` takes 2 s at most to end in order
const AGAIN_MS = [250, 1_000, 5_000, 30_000, 60_000];
const STEADY_MS = 60_000; // a coordinator that lived this long has not failed at its start
const CHILD_VARIABLES = /^(PATH|HOME|USER|LOGNAME|LANG|TMPDIR|TZ|(LC|XDG|HERD|HERDR)_.*)$/;

class Refused extends Error {
  constructor(message: string, readonly code?: string) {
    super(message);
  }
}

/** One process `herd session`, and JSON-RPC with it. */
class Coordinator {
  readonly ended: Promise<void>;
  alive = true;
  why = "it has ended";
  private child: ChildProcessWithoutNullStreams;
  private asked = new Map<number, { resolve: (answer: any) => void; reject: (error: Error) => void }>();
  private last = 0;

  constructor(cwd: string, private notified: (method: string, params: any) => void) {
    const variables = Object.entries(process.env).filter(([name]) => CHILD_VARIABLES.test(name));
    const env = { ...Object.fromEntries(variables), ...ENVIRONMENT };
    this.child = spawn(HERD, ["session"], { cwd, env, stdio: ["pipe", "pipe", "pipe"] });
    const lines = new StringDecoder("utf8");
    let rest = "";
    this.child.stdout.on("data", (bytes: Buffer) => {
      const parts = (rest + lines.write(bytes)).split("\n");
      rest = parts.pop() ?? "";
      for (const line of parts) this.took(line);
    });
    this.child.stderr.on("data", (bytes: Buffer) => (this.why = `${this.why}\n${bytes}`.slice(-400)));
    this.child.stdin.on("error", () => {}); // that it is gone is told by `close`
    this.ended = new Promise((resolve) => {
      this.child.on("error", (error) => (this.why = `${HERD} cannot be started: ${error.message}`));
      this.child.on("close", () => {
        for (const { reject } of this.asked.values()) reject(new Refused(this.why));
        this.asked.clear();
        this.alive = false;
        resolve();
      });
    });
  }

  request(method: string, params: object = {}): Promise<any> {
    return new Promise((resolve, reject) => {
      if (!this.child.stdin.writable) return reject(new Refused(this.why));
      const id = ++this.last;
      this.asked.set(id, { resolve, reject });
      this.child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, method, params })}\n`);
    });
  }

  /** Let it end in order, and end it where it does not. */
  async end(): Promise<void> {
    this.child.stdin.end();
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      if (await within(this.ended.then(() => true), END_MS).catch(() => false)) return;
      this.child.kill(signal);
    }
  }

  private took(line: string): void {
    let frame: any;
    try {
      frame = JSON.parse(line);
      if (frame.method !== undefined) return this.notified(frame.method, frame.params);
    } catch {
      return; // whatever came, or came too late for Pi: it is no reason to disturb Pi
    }
    const { id, result, error } = frame;
    const asked = this.asked.get(id);
    this.asked.delete(id);
    if (error === undefined) return asked?.resolve(result);
    const { code, hint } = error.data ?? {};
    asked?.reject(new Refused([error.message, hint].filter(Boolean).join(": "), code)); // it begins with the code
  }
}

/** Give what comes within the time and before the signal; what comes later goes to `late`. */
function within<T>(coming: Promise<T>, ms: number, signal?: AbortSignal, late?: (answer: T) => void): Promise<T> {
  return new Promise((resolve, reject) => {
    let over = false;
    const finish = (act: () => void) => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancelled);
      over = true;
      act();
    };
    const cancelled = () => finish(() => reject(new Refused("this call was cancelled")));
    const timer = setTimeout(() => finish(() => reject(new Refused("Herd did not answer in time"))), ms);
    if (signal?.aborted) cancelled();
    else signal?.addEventListener("abort", cancelled);
    coming.then(
      (answer) => (over ? late?.(answer) : finish(() => resolve(answer))),
      (error) => over || finish(() => reject(error)),
    );
  });
}

/** Give the ids of our messages in one message or entry of Pi: what a run brought, or a result of our tools. */
function idsIn(entry: any): string[] {
  const message = entry.type === "message" ? entry.message : entry;
  const ours = message.customType === CUSTOM || TOOLS.some((tool) => tool.name === message.toolName);
  return (ours && message.details?.message_ids) || [];
}

/** What one session of Pi and its coordinator know of each other. */
class Session {
  private coordinator?: Coordinator;
  private ready: Promise<void> = Promise.resolve();
  private again?: NodeJS.Timeout;
  private failures = 0;
  private heldBack = 0;
  private footer?: string;
  private target = "TARGET";
  private problem?: string;
  private closed = false;
  private notice = "";
  private told = "";
  /** Handed over, and not known to have reached the model. */
  private held = new Set<string>();
  private inRequest: string[] = [];
  private unread = 0;
  private owedWake = false;
  private woken = false; // by a notice whose run has not started
  private running = false;
  private cancelled = false;
  private dialog = false;
  private prompt?: NodeJS.Timeout;
  private delayed?: NodeJS.Timeout;

  constructor(private pi: ExtensionAPI, private ctx: ExtensionContext, private created?: string) {
    this.start();
  }

  // --- the coordinator's life ---------------------------------------------------------------------------

  private start(): void {
    const began = Date.now();
    const one = new Coordinator(this.ctx.cwd, (method, params) => method === "peer_update" && this.arrived(params));
    this.coordinator = one;
    this.ready = this.open(one).catch((error) => {
      this.failed(error.message);
      if (error.code !== HELD) void one.end(); // and the next one may fare better
    });
    void one.ended.then(() => {
      if (Date.now() - began > STEADY_MS) this.failures = 0;
      this.failed(one.why);
    });
  }

  private async open(one: Coordinator): Promise<void> {
    const session_id = this.ctx.sessionManager.getSessionId();
    const name = this.pi.getSessionName();
    const bound = await one.request("session.bind", { host: "pi", session_id, created: this.created, cwd: this.ctx.cwd, name });
    this.target = bound.target;
    this.notice = (await one.request("session.subscribe")).notice;
    const { tools } = await one.request("session.tools");
    if (JSON.stringify(tools) !== JSON.stringify(TOOLS)) for (const tool of tools) this.show(tool);
    this.failed(undefined);
    this.told = ""; // what was told to it before it had the session was refused
    this.report();
  }

  /** Make good what is wrong, if that can be done now. */
  private async joined(): Promise<void> {
    if (!this.coordinator?.alive) this.start();
    await this.ready;
    // Where another process holds the session, this one takes over some time later and is joined then.
    if (this.problem !== undefined) await this.open(this.coordinator!);
  }

  /** Note what is wrong, show it in Pi's footer, and try again later; undefined says that all is well. */
  private failed(problem: string | undefined): void {
    if (this.closed) return;
    this.problem = problem;
    this.shown();
    clearTimeout(this.again);
    if (problem === undefined) return;
    this.again = setTimeout(() => this.retry(), AGAIN_MS[Math.min(this.failures++, AGAIN_MS.length - 1)]);
    this.again.unref();
  }

  /** Show in Pi's footer, and nowhere else, what the person should know: one line, the gravest first. */
  private shown(): void {
    const line = this.line();
    if (line === this.footer || this.closed || !this.ctx.hasUI) return;
    this.footer = line;
    this.ctx.ui.setStatus(CUSTOM, line && `herd: ${line}`);
  }

  private line(): string | undefined {
    if (this.problem !== undefined) return this.problem.split("\n").pop()?.replace(/[^\x20-\x7e]/g, "?").slice(0, 120);
    if (this.heldBack > 0) return `${this.heldBack} held back; herd inbox --session ${this.target} --accept`;
    // A run takes what waits, and one that is to begin will.
    if (this.unread === 0 || this.running || this.owedWake || this.woken) return undefined;
    return this.unread === 1 ? "1 message waits" : `${this.unread} messages wait`;
  }

  private retry(): void {
    this.joined().catch((error) => this.failed(error.message));
  }

  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.again);
    clearTimeout(this.prompt);
    clearTimeout(this.delayed);
    await this.coordinator?.end();
  }

  // --- what is told to it -------------------------------------------------------------------------------

  /** Tell it something that needs no answer; whatever goes wrong shows elsewhere. */
  private tell(method: string, params: object): void {
    this.coordinator?.request(method, params).catch(() => {});
  }

  private report(more: object = {}): void {
    const headless = this.ctx.mode !== "tui" && this.ctx.mode !== "rpc";
    const blocked = this.dialog || this.cancelled || this.prompt !== undefined;
    const activity = blocked ? "waiting" : this.running ? "working" : headless ? "away" : "idle";
    if (activity !== this.told || Object.keys(more).length > 0) this.tell("session.update", { activity, ...more });
    this.told = activity;
    if (activity === "idle" && this.owedWake) this.wake();
    this.shown();
  }

  named(name: string | undefined): void {
    if (name) this.tell("session.update", { name });
  }

  prompted(idle: boolean): void {
    this.cancelled = false;
    clearTimeout(this.prompt);
    // Until its run starts no other may: Pi would refuse the person's prompt.
    if (idle) this.prompt = setTimeout(() => this.unprompted(), PROMPT_MS).unref();
    this.report({ person_prompted: true });
  }

  private unprompted(): void {
    clearTimeout(this.prompt);
    this.prompt = undefined;
    this.report();
  }

  asking(dialog: boolean): void {
    this.dialog = dialog;
    this.report();
  }

  // --- mail ---------------------------------------------------------------------------------------------

  private arrived({ unread, wake, held_back }: { unread: number; wake: boolean; held_back?: number }): void {
    if (this.closed) return;
    if (this.running && this.ctx.isIdle()) this.settled(false); // a run that failed before it began
    this.heldBack = held_back ?? 0;
    this.unread = unread;
    this.owedWake ||= wake;
    if (this.owedWake) this.wake();
    this.shown();
  }

  private wake(): void {
    clearTimeout(this.delayed);
    if (this.told !== "idle" || this.unread === 0) return;
    if (!this.ctx.isIdle()) {
      this.delayed = setTimeout(() => this.wake(), COMPACTING_MS).unref(); // no event tells when that is over
      return;
    }
    this.owedWake = false;
    this.woken = true;
    this.pi.sendMessage({ customType: CUSTOM, content: this.notice, display: true }, { triggerTurn: true });
  }

  async started(): Promise<Mail | undefined> {
    this.running = true;
    this.cancelled = this.owedWake = this.woken = false;
    this.unprompted();
    this.reconcile();
    await within(this.joined(), READY_MS).catch(() => {});
    return this.drain();
  }

  /** Give what came since the last look; a run that was cancelled or failed takes none. */
  async boundary(outcome: string, signal?: AbortSignal): Promise<Mail | undefined> {
    return outcome === "completed" && this.unread > 0 ? this.drain(signal) : undefined;
  }

  private async drain(signal?: AbortSignal): Promise<Mail | undefined> {
    if (this.problem !== undefined || this.coordinator === undefined) return undefined;
    const waited = this.unread;
    this.unread = 0;
    try {
      const asked: Promise<Mail & { more: boolean }> = this.coordinator.request("session.drain");
      const mail = await within(asked, ANSWER_MS, signal, (late) => this.release(late.message_ids));
      this.unread = mail.more ? Math.max(1, waited - mail.message_ids.length) : 0;
      for (const id of mail.message_ids) this.held.add(id);
      // After a restart what was handed over before may come again, though Pi kept it: once is enough.
      const kept = this.kept();
      const known = mail.message_ids.length > 0 && mail.message_ids.every((id) => kept.has(id));
      return mail.text && !known ? mail : undefined;
    } catch {
      this.unread = Math.max(1, waited, this.unread);
      return undefined;
    }
  }

  async call(name: string, given: object, call_id: string, signal?: AbortSignal) {
    try {
      if (this.problem !== undefined) await within(this.joined(), READY_MS, signal);
      const asked = this.coordinator!.request("session.tool", { name, arguments: given, call_id });
      const answer = await within<any>(asked, TOOL_MS, signal, (late) => this.release(late.message_ids));
      for (const id of answer.message_ids) this.held.add(id);
      return answer as Mail & { is_error: boolean };
    } catch (error: any) {
      return { text: `Herd cannot do this now. ${error.message}`, message_ids: [], is_error: true };
    }
  }

  requesting(messages: any[]): void {
    this.inRequest = this.held.size === 0 ? [] : messages.flatMap(idsIn).filter((id) => this.held.has(id));
  }

  answered(): void {
    if (this.inRequest.length > 0) this.tell("session.confirm", { message_ids: this.inRequest, evidence: EVIDENCE });
    for (const id of this.inRequest) this.held.delete(id);
    this.inRequest = [];
  }

  settled(aborted: boolean): void {
    this.running = this.woken = false;
    this.cancelled = aborted;
    this.unread = 0; // what still waits is told anew at the end of a turn
    this.reconcile();
    this.report({ turn_ended: true });
  }

  /** Give back what is not in Pi's transcript: no later request will hold it. */
  reconcile(): void {
    const kept = this.kept();
    this.release([...this.held].filter((id) => !kept.has(id)));
  }

  private kept(): Set<string> {
    return new Set(this.ctx.sessionManager.buildContextEntries().flatMap(idsIn));
  }

  private release(message_ids: string[]): void {
    if (message_ids.length > 0) this.tell("session.release", { message_ids });
    for (const id of message_ids) this.held.delete(id);
  }

  // --- tools --------------------------------------------------------------------------------------------

  show(tool: Tool): void {
    this.pi.registerTool({
      name: tool.name,
      label: tool.name,
      description: tool.description,
      parameters: tool.inputSchema,
      exposure: "model-only", // a script's use of a result would be no evidence that the model has it
      execute: async (toolCallId, params, signal, _onUpdate, ctx) => {
        // Some models number their calls anew in each answer; the entry of the answer tells those apart.
        const call_id = `${toolCallId} ${ctx.sessionManager.getLeafId() ?? ""}`.slice(0, 512);
        const { text, message_ids, is_error } = await this.call(tool.name, params as object, call_id, signal);
        return { content: [{ type: "text", text }], details: { message_ids }, isError: is_error };
      },
    });
  }
}

export default function herd(pi: ExtensionAPI): void {
  let session: Session | undefined;
  const message = ({ text, message_ids }: Mail) =>
    ({ customType: CUSTOM, content: text, display: true, details: { message_ids } }) as const;

  pi.registerMessageRenderer(CUSTOM, (shown, { outputPad }, theme) => {
    // As plain text: rendered as Markdown a peer's words could hide where a link leads.
    return new Text(`${theme.fg("customMessageLabel", "[herd]")}\n${shown.content}`, outputPad, 0);
  });
  pi.on("session_start", async (_event, ctx) => {
    // A subagent of somebody's extension: nobody can write to it again, and it is no peer.
    if (!ctx.hasUI && ctx.sessionManager.getSessionFile() === undefined) return;
    session = new Session(pi, ctx, ctx.sessionManager.getHeader()?.timestamp);
    for (const tool of TOOLS) session.show(tool);
  });
  pi.on("session_shutdown", async () => {
    const ending = session;
    session = undefined;
    await ending?.close();
  });
  pi.on("input", async ({ source }, ctx) => {
    if (source !== "extension") session?.prompted(ctx.isIdle());
  });
  pi.on("before_agent_start", async () => {
    const mail = await session?.started();
    return mail && { message: message(mail) };
  });
  for (const boundary of ["turn_end", "agent_before_settle"] as const) {
    pi.on(boundary as "turn_end", async (event, ctx) => {
      const mail = await session?.boundary(event.outcome, ctx.signal);
      return mail && { entries: [...event.entries, { type: "custom_message", ...message(mail) }], continue: true };
    });
  }
  pi.on("context", async (event) => session?.requesting(event.messages));
  pi.on("message_start", async ({ message: started }) => {
    if (started.role !== "assistant" || ["error", "aborted"].includes(started.stopReason)) return;
    session?.answered();
  });
  pi.on("agent_settled", async ({ aborted }) => session?.settled(aborted));
  pi.on("session_tree", async () => session?.reconcile());
  pi.on("session_compact", async () => session?.reconcile());
  pi.on("session_info_changed", async ({ name }) => session?.named(name));
  pi.on("ui_prompt_start", async () => session?.asking(true));
  pi.on("ui_prompt_end", async () => session?.asking(false));
}
