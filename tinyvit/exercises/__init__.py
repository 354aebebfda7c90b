"""Write a forward or a backward yourself, and have it checked as a teacher would.

    from tinyvit import exercises

    print(exercises.table())                                # all, with their notebooks and levels
    print(exercises.describe("layernorm_backward"))         # what to write: arguments, results, shapes
    exercises.check("layernorm_backward", my_function)      # right; or which gradient, which entry, which mistake
    exercises.check_number("my_loss", my_loss, 0.1369, hint, 1e-4)  # a number worked out on paper
    print(exercises.hint("layernorm_backward"))             # a question; at the next call more, then the formula
    print(exercises.solution("layernorm_backward"))         # plain NumPy, as it was asked for

    exercises.check_steps("block", my_steps)                # your intermediates by name: where the first wrong one is
    exercises.train(my_module)                              # trains your own vit and vit_backward on the digits

The exercises, and the arguments that each passes to your function:

    scale_and_shift_backward(dy, x, weight)         centre_backward(dy)
    patchify(images, patch)                         patchify_backward(dy, patch, img_size)
    embed(patches, weight, bias, cls_token, positions)
    embed_backward(dy, patches, weight)             linear(x, weight, bias)
    linear_backward(dy, x, weight)                  sincos_positions(rows, columns, width)
    rope(x, grid, theta)                            rope_backward(dy, grid, theta)
    layernorm(x, weight, bias, eps)                 layernorm_backward(dy, x, weight, eps)
    rmsnorm(x, weight, eps)                         rmsnorm_backward(dy, x, weight, eps)
    softmax(x)                                      softmax_backward(dy, x)
    attention(q, k, v)                              attention_backward(dy, q, k, v)
    multi_head_attention(x, qkv_weight, qkv_bias, proj_weight, proj_bias, num_heads)
    multi_head_attention_backward(dy, x, qkv_weight, qkv_bias, proj_weight, num_heads)
    gelu(x)                                         gelu_backward(dy, x)
    mlp(x, weight1, bias1, weight2, bias2)          mlp_backward(dy, x, weight1, bias1, weight2)
    block(x, parameters, num_heads, eps)            block_backward(dy, x, parameters, num_heads, eps)
    vit(images, parameters, depth, num_heads, eps)  vit_backward(dy, images, parameters, depth, num_heads, eps)
    worked_example_backward(patches)                cross_entropy(logits, labels, label_smoothing)
    cross_entropy_backward(dy, logits, labels, label_smoothing)
    adam(theta, g, m, v, t, lr, beta1, beta2, eps)  clip_gradients(dweight, dbias, max_norm)
    adamw(theta, g, m, v, t, lr, beta1, beta2, eps, weight_decay)
    drop_path(x, branch, kept, rate)                drop_path_backward(dy, kept, rate)
    layer_scale_backward(dy, branch, weight)        schedule(step, total, warmup)
    cutmix(image, target, partner, partner_target, box)
    mixup_loss(logits, labels, partner_labels, share)
    newton_schulz(G, iterations)                    ema(average, theta, t, decay)
    rollout(attention)                              derivative(f, x)
    softmax_merge(m1, l1, m2, l2)                   kahan_sum(numbers)
    bicubic(old, new)                               resize_backward(dy, down, across)
    lora(x, weight, down, up, alpha)                lora_backward(dy, x, weight, down, up, alpha)
    conv2d(x, weight, bias, stride, padding)        conv2d_backward(dy, x, weight, stride, padding)
    depthwise_conv2d(x, weight, padding)            depthwise_conv2d_backward(dy, x, weight, padding)
    batch_norm(x, weight, bias, eps)                batch_norm_backward(dy, x, weight, eps)
    running_statistics(x, running_mean, running_variance, momentum)
    group_norm(x, weight, bias, num_groups, eps)    group_norm_backward(dy, x, weight, num_groups, eps)
    standardize_weight(weight, eps)                 standardize_weight_backward(dy, weight, eps)
    relu_backward(dy, x)                            max_pool2d(x, kernel, stride)
    max_pool2d_backward(dy, x, kernel, stride)      avg_pool2d_backward(dy, kernel, stride, img_size)
    distillation(logits, teacher, temperature)      distillation_backward(logits, teacher, temperature)
    window_partition(x, window, shift)              window_reverse(windows, sides, window, shift)
    window_mask(sides, window, shift)               merge_patches(x)
    relative_bias(table, side)                      relative_bias_backward(dy, side)
    silu_backward(dy, x)                            scale_channels_backward(dy, x, weight)
    place_tokens(x, token, index, count)            place_tokens_backward(dy, index)
    mae_loss(pixels, patches, hidden)               l2_normalise_backward(dy, x)
    centre_teacher(logits, centre, temperature, momentum)
    dino_loss(logits, teacher, temperature)         dino_loss_backward(logits, teacher, temperature)
    embedding_backward(dy, index, count)            causal_attention(q, k, v)
    similarity_backward(dy, images, texts, scale)   contrastive_loss(logits)
    contrastive_loss_backward(logits)               zero_shot(images, prompts)
    add_noise(x, noise, level)                      ddim_step(x, noise, level, previous)
    modulate_backward(dy, x, gain)                  add_gated_backward(dy, branch, gate)
    embed_labels_backward(dy, labels, count)        tubelets(videos, tubelet)
    from_tubelets(tubelets, tubelet, size)          inflate(weight, frames)
    merge_tiles(m1, Z1, a1, m2, Z2, a2)             to_fragments(A)
    conv_transpose2d(x, weight, bias)               conv_transpose2d_backward(dy, x, weight)
    layernorm2d(x, weight, bias, eps)               layernorm2d_backward(dy, x, weight, eps)
    resize_bilinear(x, size)                        resize_bilinear_backward(dy, x)
    pixel_cross_entropy(logits, labels, ignore)     pixel_cross_entropy_backward(dy, logits, labels, ignore)
    rope_halves(x, positions, theta)                rope_halves_backward(dy, positions, theta)
    packed_attention(q, k, v, bounds)               packed_attention_backward(dy, q, k, v, bounds)
    reorder_tokens(x, order)                        reorder_tokens_backward(dy, order)

One convention holds for all. Plain float64 arrays come in, by position (by name what a function takes only so), and
plain arrays go out: one bare, several as a tuple or a list. A forward returns its result and no cache. A backward gets
`dy`, the gradient of that result, and then those arguments of the forward that its gradients depend on; what it needs
besides, it computes again. It returns the gradients of the forward's arrays in their order. Inputs must not be changed.
Two differ: `schedule` is called once for every step, and `kahan_sum` gets float32.

`check` calls the function within a time limit (`calling`), on cases that come from the exercise's `domain`: its sizes
and options with their edges, unusual numbers, and some sizes at random. It compares its result (`outputs`: the number
of values, types, shapes, which entry is wrong) and recognises usual mistakes by their numbers (`recognise`): those of
the exercise and of the parts it is made of (`parts`), or of any exercise (`general_mistakes`, `kinds`). What has no
name is answered by what should hold (`invariants`). Whatever the function does, the answer is text and no traceback,
the name of the mistake first, and at most twelve lines. Each topic in `topics` has two files: tasks and solutions are
in the .py, hints, steps and mistakes in the .txt; `exercise` says how to write them.
"""

from tinyvit.exercises.catalogue import describe, hint, names, solution, table
from tinyvit.exercises.checking import Report, check
from tinyvit.exercises.number_answers import check_number
from tinyvit.exercises.own_vit import train
from tinyvit.exercises.steps import check_steps, steps
