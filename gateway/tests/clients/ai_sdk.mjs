// Vercel AI SDK with @ai-sdk/openai: text, streams, tools, objects.
import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const provider = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: "none" });
const known = await fetch(`${process.env.BASE_URL}/responses`, { method: "POST", body: "{}" });
const models = { chat: provider.chat("mild") };
if (known.status !== 404) models.responses = provider.responses("mild");

for (const [name, model] of Object.entries(models)) {
  const plain = await generateText({ model, prompt: "What is 17 * 23?", maxRetries: 0 });
  assert.equal(plain.text, "391");
  assert.equal(plain.finishReason, "stop");
  assert.ok(plain.usage.totalTokens > 0);

  const stream = streamText({ model, prompt: "What is the capital of France?", maxRetries: 0 });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, "Paris");

  const weather = tool({
    description: "The weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: async ({ city }) => `It rains: ${city}`,
  });
  const told = await generateText({
    model,
    prompt: "How is the weather?",
    tools: { get_weather: weather },
    stopWhen: stepCountIs(3),
    maxRetries: 0,
  });
  assert.ok(told.text.includes("It rains: How is the weather?"));
  assert.equal(told.steps.length, 2);

  const made = await generateObject({
    model,
    schema: z.object({ total: z.number() }),
    prompt: "What is 17 * 23?",
    maxRetries: 0,
  });
  assert.deepEqual(made.object, { total: 391 });
  console.log(name);
}
