// Makes and reads messages to sign in with (EIP-4361), with the packages that web pages use.
//   sign-in.mjs siwe|viem KEY NONCE CHAIN NOW_MS short|full       → {"message", "signature"}
//   sign-in.mjs siwe|viem verify MESSAGE SIGNATURE NOW_MS          → {"valid", "address", "nonce", "chainId"}
import { SiweMessage } from "siwe";
import { privateKeyToAccount } from "viem/accounts";
import { createSiweMessage, parseSiweMessage, validateSiweMessage } from "viem/siwe";
import { verifyMessage } from "viem";

const [library, ...rest] = process.argv.slice(2);

function fields(account, nonce, chain, now, form) {
  const moment = (ms) => new Date(Number(now) + ms);
  const short = {
    address: account.address,
    chainId: Number(chain),
    domain: "guild.example",
    issuedAt: moment(0),
    nonce,
    uri: "https://guild.example/login",
    version: "1",
  };
  if (form === "short") return short;
  return {
    ...short,
    scheme: "https",
    statement: "Sign in to Guildhall, please: it costs nothing!",
    expirationTime: moment(300_000),
    notBefore: moment(-1_000),
    requestId: "request-1",
    resources: ["https://guild.example/terms", "ipfs://bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"],
  };
}

async function make(key, nonce, chain, now, form) {
  const account = privateKeyToAccount(key);
  const all = fields(account, nonce, chain, now, form);
  const text = (value) => (value instanceof Date ? value.toISOString() : value);
  const texts = Object.fromEntries(Object.entries(all).map(([name, value]) => [name, text(value)]));
  const message = library === "viem" ? createSiweMessage(all) : new SiweMessage(texts).prepareMessage();
  return { message, signature: await account.signMessage({ message }) };
}

async function verify(message, signature, now) {
  const time = new Date(Number(now));
  if (library === "viem") {
    const read = parseSiweMessage(message);
    const { address, nonce, chainId } = read;
    const good = validateSiweMessage({ message: read, domain: "guild.example", time });
    return { valid: good && (await verifyMessage({ address, message, signature })), address, nonce, chainId };
  }
  const read = new SiweMessage(message);
  const { success } = await read.verify({ signature, domain: "guild.example", time: time.toISOString() });
  return { valid: success, address: read.address, nonce: read.nonce, chainId: read.chainId };
}

const done = rest[0] === "verify" ? await verify(...rest.slice(1)) : await make(...rest);
console.log(JSON.stringify(done));
