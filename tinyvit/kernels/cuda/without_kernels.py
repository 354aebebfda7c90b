"""Operations that have no kernel of their own in bfloat16 and float16.

A rotation's angles need float32's digits in any case. Dropped probabilities are for small data; their mask is as large
as the scores, and so is all that comes with it.
"""

from tinyvit.functional.attention import attention_dropout
from tinyvit.functional.rope import rope
from tinyvit.kernels.cuda.through_float32 import through_float32

through_float32(rope)
through_float32(attention_dropout, inputs=3)
