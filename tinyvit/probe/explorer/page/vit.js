// A whole ViT for one image, forward and backward, as in tinyvit/minimal.py: w are the parameters by name. A backward
// is its forward read from the bottom up. It puts the gradients of the parameters into `grads`, and returns with dx the
// gradients on its way that the page shows.

/** One linear map gives q, k and v of every head; attention within each head; one more linear map mixes them. */
function multi_head_attention(x, w, name, { heads, positions, grid }, on) {
  const [qkv, c_qkv] = linear(x, w[`${name}qkv.weight`], w[`${name}qkv.bias`]); // (N, 3D)
  let [[q, k, v]] = split_heads(qkv, heads), c_rope = null;                     // each (H, N, d)
  if (positions === "rope") {
    [q, c_rope] = rope(q, grid);
    [k] = rope(k, grid);
  }
  const [each, c_heads] = attention(q, k, v);                                   // (H, N, d)
  const [kept, c_switch] = switch_heads(each, on);
  const [merged, c_merge] = merge_heads(kept);                                  // (N, D)
  const [y, c_proj] = linear(merged, w[`${name}proj.weight`], w[`${name}proj.bias`]);
  return [y, { name, qkv: c_qkv, rope: c_rope, heads: c_heads, switch: c_switch, merge: c_merge, proj: c_proj, each }];
}

function multi_head_attention_backward(dy, cache, grads) {
  const dmerged = linear_into(grads, `${cache.name}proj`, dy, cache.proj);
  const dkept = merge_heads_backward(dmerged, cache.merge);
  const deach = switch_heads_backward(dkept, cache.switch);
  const [dq, dk, dv, { dprobs, dscores }] = attention_backward(deach, cache.heads);
  const turned = cache.rope ? [dq, dk].map((dturned) => rope_backward(dturned, cache.rope)) : [dq, dk];
  const dx = linear_into(grads, `${cache.name}qkv`, split_heads_backward([...turned, dv]), cache.qkv);
  return [dx, { dq, dk, dv, dprobs, dscores, deach }];
}

const ACTIVATIONS = { gelu: [gelu, gelu_backward], gelu_tanh: [gelu_tanh, gelu_tanh_backward] };

/** x + attention(norm(x)), and to that the MLP of its norm. */
function block(x, w, name, config, on) {
  const [a1, c_norm1] = layernorm(x, w[`${name}norm1.weight`], w[`${name}norm1.bias`], config.eps);
  const [a, c_attn] = multi_head_attention(a1, w, `${name}attn.`, config, on);
  const mid = plus(x, a);
  const [m1, c_norm2] = layernorm(mid, w[`${name}norm2.weight`], w[`${name}norm2.bias`], config.eps);
  const [h, c_fc1] = linear(m1, w[`${name}mlp.fc1.weight`], w[`${name}mlp.fc1.bias`]);
  const [activated, c_act] = ACTIVATIONS[config.activation][0](h);
  const [m, c_fc2] = linear(activated, w[`${name}mlp.fc2.weight`], w[`${name}mlp.fc2.bias`]);
  const cache = { name, activation: config.activation, norm1: c_norm1, attn: c_attn, norm2: c_norm2, fc1: c_fc1,
                  act: c_act, fc2: c_fc2 };
  return [plus(mid, m), { ...cache, x, a1, a, mid, m1, h, activated, m }];
}

/** The forward, read from the bottom up. Where x goes two ways, its gradients add up. */
function block_backward(dy, cache, grads) {
  const { name } = cache;
  const dactivated = linear_into(grads, `${name}mlp.fc2`, dy, cache.fc2);
  const dh = ACTIVATIONS[cache.activation][1](dactivated, cache.act);
  const dm1 = linear_into(grads, `${name}mlp.fc1`, dh, cache.fc1);
  const dmid = plus(dy, norm_into(grads, `${name}norm2`, dm1, cache.norm2));
  const [da1, dattn] = multi_head_attention_backward(dmid, cache.attn, grads);
  const dx = plus(dmid, norm_into(grads, `${name}norm1`, da1, cache.norm1));
  return [dx, { ...dattn, dmid, dh }];
}

/** Patches, class token, positions: an image (C, height, width) into tokens (N+1, D). */
function embed(image, w, config) {
  const kernel = w["patch_embed.proj.weight"];                                  // (D, C, P, Q)
  const [patches, c_patchify] = patchify(image, config.patch);                  // (N, C·P·Q)
  const flat = reshaped(kernel, kernel.shape[0], patches.shape[1]);
  const [projected, c_proj] = linear(patches, flat, w["patch_embed.proj.bias"]);
  const [tokens] = prepend_token(projected, w.cls_token);                       // (N+1, D)
  let positions = w.pos_embed, c_grid = null;                                   // learned, or sines and cosines
  if (config.positions === "learned_2d") [positions, c_grid] = grid_positions(w.pos_embed_x, w.pos_embed_y);
  return [positions ? plus(tokens, positions) : tokens,
          { kind: config.positions, patchify: c_patchify, proj: c_proj, grid: c_grid, kernel }];
}

function embed_backward(dtokens, cache, grads) {
  const dpositions = reshaped(dtokens, 1, ...dtokens.shape);
  if (cache.kind === "learned") grads.pos_embed = dpositions;
  if (cache.grid) [grads.pos_embed_x, grads.pos_embed_y] = grid_positions_backward(dpositions, cache.grid);
  const [dprojected, dtoken] = prepend_token_backward(dtokens);
  grads.cls_token = dtoken;
  const dpatches = linear_into(grads, "patch_embed.proj", dprojected, cache.proj);
  grads["patch_embed.proj.weight"] = reshaped(grads["patch_embed.proj.weight"], ...cache.kernel.shape);
  return patchify_backward(dpatches, cache.patchify);
}

/** Features (1, D) into logits (1, K): a linear map, or the pre-training head with one hidden layer. */
function head(features, w) {
  let x = features, c_pre = null, c_tanh = null;
  if (w["pre_logits.fc.weight"]) {
    [x, c_pre] = linear(x, w["pre_logits.fc.weight"], w["pre_logits.fc.bias"]);
    [x, c_tanh] = tanh(x);
  }
  const [logits, c_head] = linear(x, w["head.weight"], w["head.bias"]);
  return [logits, { pre_logits: c_pre, tanh: c_tanh, head: c_head }];
}

function head_backward(dlogits, cache, grads) {
  const dx = linear_into(grads, "head", dlogits, cache.head);
  if (!cache.tanh) return dx;
  return linear_into(grads, "pre_logits.fc", tanh_backward(dx, cache.tanh), cache.pre_logits);
}

/** Logits (1, K) of an image (C, height, width); on[block][head] is 0 for a head that is switched off, else 1. */
function vit(image, w, config, on) {
  const [embedded, c_embed] = embed(image, w, config);
  const stream = [embedded], blocks = [];
  for (let i = 0; i < config.depth; i++) {
    const [x, c_block] = block(stream[i], w, `blocks.${i}.`, config, on[i]);
    stream.push(x);
    blocks.push(c_block);
  }
  const [normed, c_norm] = layernorm(stream[config.depth], w["norm.weight"], w["norm.bias"], config.eps);
  const [features, c_pool] = config.pool === "token" ? pool_token(normed) : pool_mean(normed);
  const [logits, c_head] = head(features, w);
  return [logits, { embed: c_embed, blocks, norm: c_norm, pool: c_pool, head: c_head, kind: config.pool, stream, normed,
                    features }];
}

/** The gradient of the loss with respect to the image, and to all that is on its way. */
function vit_backward(dlogits, cache, grads) {
  const dfeatures = head_backward(dlogits, cache.head, grads);
  const dnormed = (cache.kind === "token" ? pool_token_backward : pool_mean_backward)(dfeatures, cache.pool);
  let dx = norm_into(grads, "norm", dnormed, cache.norm);
  const dstream = [dx], blocks = [];
  for (const c_block of [...cache.blocks].reverse()) {
    let dblock;
    [dx, dblock] = block_backward(dx, c_block, grads);
    dstream.unshift(dx);
    blocks.unshift(dblock);
  }
  return [embed_backward(dx, cache.embed, grads), { dstream, blocks, dfeatures }];
}

/** linear_backward, with the gradients of the layer's parameters put under their names: dx. */
function linear_into(grads, name, dy, cache) {
  const [dx, dweight, dbias] = linear_backward(dy, cache);
  grads[`${name}.weight`] = dweight;
  if (cache.bias) grads[`${name}.bias`] = dbias; // queries, keys and values needn't have one
  return dx;
}

function norm_into(grads, name, dy, cache) {
  const [dx, dweight, dbias] = layernorm_backward(dy, cache);
  Object.assign(grads, { [`${name}.weight`]: dweight, [`${name}.bias`]: dbias });
  return dx;
}
