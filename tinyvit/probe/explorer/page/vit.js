// A whole ViT for one image, forward and backward, as in tinyvit/minimal.py: w are the parameters by name. A backward
// is its forward read from the bottom up. It puts the gradients of the layers' parameters into `grads`, and returns
// with dx the gradients on its way that the page shows.

/** An operation with the weight and bias of a layer; its cache has what went in and came out, which the page shows. */
function layer(operation, x, w, name, ...more) {
  const [y, cache] = operation(x, w[`${name}.weight`], w[`${name}.bias`], ...more);
  return [y, { ...cache, name, x, y }];
}

/** Its backward: dx, with the gradients of the layer's parameters put under their names. */
function layer_backward(backward, dy, cache, grads) {
  const [dx, dweight, dbias] = backward(dy, cache);
  grads[`${cache.name}.weight`] = dweight;
  if (dbias) grads[`${cache.name}.bias`] = dbias; // queries, keys and values needn't have one
  return dx;
}

/** One linear map gives q, k and v of every head; attention within each head; one more linear map mixes them. */
function multi_head_attention(x, w, name, { num_heads, positions, grid }, on) {
  const [qkv, c_qkv] = layer(linear, x, w, `${name}.qkv`);                      // (N, 3D)
  const [q, k, v] = split_heads(qkv, num_heads);                                    // each (H, N, d)
  const angles = positions === "rope" ? rope_angles(grid, q.shape[2]) : [];
  const [each, c_heads] = attention(rope(q, angles), rope(k, angles), v);       // (H, N, d)
  const merged = merge_heads(switch_heads(each, on));                           // (N, D)
  const [y, c_proj] = layer(linear, merged, w, `${name}.proj`);
  return [y, { qkv: c_qkv, angles, heads: c_heads, on, proj: c_proj, each }];
}

function multi_head_attention_backward(dy, cache, grads) {
  const dmerged = layer_backward(linear_backward, dy, cache.proj, grads);
  const deach = switch_heads(merge_heads_backward(dmerged, cache.on.length), cache.on);
  const [dq, dk, dv, { dprobs, dscores }] = attention_backward(deach, cache.heads);
  const dqkv = split_heads_backward([rope(dq, cache.angles, -1), rope(dk, cache.angles, -1), dv]);
  return [layer_backward(linear_backward, dqkv, cache.qkv, grads), { dq, dk, dv, dprobs, dscores }];
}

const ACTIVATIONS = { gelu: [gelu, gelu_backward], gelu_tanh: [gelu_tanh, gelu_tanh_backward] };

/** x + attention(norm(x)), and to that the MLP of its norm. */
function block(x, w, name, config, on) {
  const [activate, activate_backward] = ACTIVATIONS[config.activation];
  const [a1, norm1] = layer(layernorm, x, w, `${name}.norm1`, config.norm_eps);
  const [a, attn] = multi_head_attention(a1, w, `${name}.attn`, config, on);
  const mid = plus(x, a);
  const [m1, norm2] = layer(layernorm, mid, w, `${name}.norm2`, config.norm_eps);
  const [h, fc1] = layer(linear, m1, w, `${name}.mlp.fc1`);
  const [activated, act] = activate(h);
  const [m, fc2] = layer(linear, activated, w, `${name}.mlp.fc2`);
  return [plus(mid, m), { norm1, attn, norm2, fc1, act, activate_backward, fc2 }];
}

/** The forward, read from the bottom up. Where x goes two ways, its gradients add up. */
function block_backward(dy, cache, grads) {
  const dactivated = layer_backward(linear_backward, dy, cache.fc2, grads);
  const dh = cache.activate_backward(dactivated, cache.act);
  const dm1 = layer_backward(linear_backward, dh, cache.fc1, grads);
  const dmid = plus(dy, layer_backward(layernorm_backward, dm1, cache.norm2, grads));
  const [da1, dattn] = multi_head_attention_backward(dmid, cache.attn, grads);
  return [plus(dmid, layer_backward(layernorm_backward, da1, cache.norm1, grads)), dattn];
}

/** Patches, class token, positions: an image (C, height, width) into tokens (N+1, D). */
function embed(image, w, config) {
  const [patches, c_patchify] = patchify(image, config.patch_size);                  // (N, C·P·Q)
  const kernel = reshaped(w["patch_embed.proj.weight"], config.embed_dim, patches.shape[1]);
  const [projected, c_proj] = linear(patches, kernel, w["patch_embed.proj.bias"]);
  const x = prepend_token(projected, w.cls_token);                              // (N+1, D)
  return [w.pos_embed ? plus(x, w.pos_embed) : x, { patchify: c_patchify, proj: c_proj }];
}

function embed_backward(dx, cache) {
  const [dpatches] = linear_backward(prepend_token_backward(dx), cache.proj);
  return patchify_backward(dpatches, cache.patchify);
}

/** Features (1, D) into logits (1, K): a linear map, or the pre-training head with one hidden layer. */
function head(features, w) {
  if (!w["pre_logits.fc.weight"]) return layer(linear, features, w, "head");
  const [hidden, c_hidden] = layer(linear, features, w, "pre_logits.fc");
  const [x, c_tanh] = tanh(hidden);
  const [logits, c_head] = layer(linear, x, w, "head");
  return [logits, { ...c_head, hidden: c_hidden, tanh: c_tanh }];
}

function head_backward(dlogits, cache, grads) {
  const dx = layer_backward(linear_backward, dlogits, cache, grads);
  if (!cache.hidden) return dx;
  return layer_backward(linear_backward, tanh_backward(dx, cache.tanh), cache.hidden, grads);
}

/** Logits (1, K) of an image (C, height, width); on[block][head] is 0 for a head that is switched off, else 1. */
function vit(image, w, config, on) {
  const [embedded, c_embed] = embed(image, w, config);
  const stream = [embedded], blocks = [];
  for (let i = 0; i < config.depth; i++) {
    [stream[i + 1], blocks[i]] = block(stream[i], w, `blocks.${i}`, config, on[i]);
  }
  const [normed, norm] = layer(layernorm, stream[config.depth], w, "norm", config.norm_eps);
  const pool = pooling(config.global_pool, normed.shape[0]), features = matmul(pool, normed);
  const [logits, c_head] = head(features, w);
  return [logits, { embed: c_embed, blocks, norm, pool, head: c_head, stream, features }];
}

/** The gradient of the loss with respect to the image, and to the tokens and attention of every block. */
function vit_backward(dlogits, cache, grads) {
  const dnormed = matmul(transposed(cache.pool), head_backward(dlogits, cache.head, grads));
  const depth = cache.blocks.length, dstream = [], blocks = [];
  dstream[depth] = layer_backward(layernorm_backward, dnormed, cache.norm, grads);
  for (let i = depth - 1; i >= 0; i--) {
    [dstream[i], blocks[i]] = block_backward(dstream[i + 1], cache.blocks[i], grads);
  }
  return [embed_backward(dstream[0], cache.embed), { dstream, blocks }];
}
