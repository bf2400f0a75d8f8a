// openai for node: plain, streaming, tools, parsed answers.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const user = (content) => [{ role: "user", content }];
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
};

const plain = await client.chat.completions.create({ model: "mild", messages: user("What is 17 * 23?") });
assert.equal(plain.model, "rules");
assert.equal(plain.choices[0].message.content, "391");
console.log("plain");

const capital = user("What is the capital of France?");
const stream = await client.chat.completions.create({ model: "mild", messages: capital, stream: true });
let text = "";
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
assert.equal(text, "Paris");
const collected = client.chat.completions.stream({ model: "mild", messages: capital });
assert.equal(await collected.finalContent(), "Paris");
console.log("streaming");

const run = client.chat.completions.runTools({
  model: "mild",
  messages: user("How is the weather?"),
  tools: [{
    type: "function",
    function: {
      ...weather.function,
      description: "The weather of a city.",
      parse: JSON.parse,
      function: ({ city }) => `It rains: ${city}`,
    },
  }],
});
assert.equal(await run.finalContent(), "It rains: How is the weather?");
const called = client.chat.completions.stream({
  model: "mild",
  messages: user("How is the weather?"),
  tools: [weather],
});
const message = await called.finalMessage();
assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "How is the weather?" });
console.log("tools");

const parsed = await client.chat.completions.parse({
  model: "mild",
  messages: user("What is 17 * 23?"),
  response_format: zodResponseFormat(z.object({ total: z.number() }), "total"),
});
assert.deepEqual(parsed.choices[0].message.parsed, { total: 391 });
console.log("parse");

await assert.rejects(
  client.chat.completions.create({ model: "gpt-4", messages: capital }),
  (error) => error instanceof OpenAI.NotFoundError && error.code === "model_not_found",
);
console.log("errors");

// An older gateway has no such endpoint.
const known = await fetch(`${process.env.BASE_URL}/responses`, { method: "POST", body: "{}" });
if (known.status !== 404) {
  const response = await client.responses.create({ model: "mild", input: "What is 17 * 23?" });
  assert.equal(response.output_text, "391");
  const events = client.responses.stream({ model: "mild", input: "What is the capital of France?" });
  assert.equal((await events.finalResponse()).output_text, "Paris");
  console.log("responses");
}
