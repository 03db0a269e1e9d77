// Models of another make: a service that speaks as OpenAI, Anthropic, Gemini and Ollama do.
// Prints its address, and ends with its standard input.
import { LLMock } from "@copilotkit/aimock";

const [key] = process.argv.slice(2);
const usage = { prompt_tokens: 12, completion_tokens: 5 };
const call = (city) => ({ name: "weather", arguments: JSON.stringify({ city }) });

const service = new LLMock({ port: 0, host: "127.0.0.1", chunkSize: 3, auth: { apiKeys: [key] } });
service.on({ userMessage: "weather", hasToolResult: true }, { content: "Both are fine." });
service.on({ userMessage: "weather" }, { toolCalls: [call("Rome"), call("Oslo")] });
service.onMessage("greet", { content: "Grüß Gott, stranger.", usage });
service.onMessage("think", { content: "42", reasoning: "Six times seven." });
service.onMessage("crowd", { error: { message: "Slow down.", type: "rate_limit_error" }, status: 429, retryAfter: 3 });
service.onMessage("nonsense", { error: { message: "What?", type: "invalid_request_error" }, status: 400 });
service.onMessage("cut", { content: "This is never said to its end." }, { truncateAfterChunks: 2 });

console.log(await service.start());
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
