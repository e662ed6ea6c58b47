#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tiny random Hugging Face folders with the tensor names, dtypes and config.json keys of published models.

Small are the extents alone, and none fills blocks of 128 evenly, since published ones do not either. Usage:
tiny_models.py FOLDER [MODEL]... writes FOLDER/MODEL for each; without MODEL all of them.
"""

import functools
import json
import pathlib
import random
import struct
import sys
import typing

WIDTH = {"BF16": 2, "F32": 4, "F64": 8, "I64": 8, "BOOL": 1}


class Sizes(typing.NamedTuple):
    hidden: int = 160
    wide: int = 224
    expert: int = 96
    vocabulary: int = 192
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    mamba_heads: int = 8
    mamba_head: int = 16
    mamba_state: int = 16


RAGGED = Sizes()
# Whole blocks: for readers that derive the block from the scales' shape, and what engines load on one GPU.
WHOLE = Sizes(hidden=256, wide=256, expert=128, kv_heads=4, mamba_heads=16, mamba_head=8, mamba_state=28)


class Model:
    """Names in the order in which the model runs: {name: (dtype, shape)}."""

    def __init__(self, sizes, config):
        self.s, self.config, self.tensors = sizes, config, {}

    def add(self, name, *shape, dtype="BF16"):
        self.tensors[name] = (dtype, list(shape))

    def linear(self, name, rows, cols, bias=False):
        self.add(name + ".weight", rows, cols)
        if bias:
            self.add(name + ".bias", rows)

    def norm(self, name, extent, bias=False):
        self.add(name + ".weight", extent)
        if bias:
            self.add(name + ".bias", extent)

    def attention(self, at, bias=False, norms=False, gated=False):
        self.linear(at + "q_proj", self.s.heads * self.s.head * (2 if gated else 1), self.s.hidden, bias)
        self.linear(at + "k_proj", self.s.kv_heads * self.s.head, self.s.hidden, bias)
        self.linear(at + "v_proj", self.s.kv_heads * self.s.head, self.s.hidden, bias)
        self.linear(at + "o_proj", self.s.hidden, self.s.heads * self.s.head)
        if norms:
            self.norm(at + "q_norm", self.s.head)
            self.norm(at + "k_norm", self.s.head)

    def mlp(self, at, width, names=("gate_proj", "up_proj", "down_proj")):
        for name in names[:-1]:
            self.linear(at + name, width, self.s.hidden)
        self.linear(at + names[-1], self.s.hidden, width)

    def norms_of(self, at):
        self.norm(at + "input_layernorm", self.s.hidden)
        self.norm(at + "post_attention_layernorm", self.s.hidden)

    def ends(self, prefix="model.", head=True):
        self.add(prefix + "embed_tokens.weight", self.s.vocabulary, self.s.hidden)
        self.norm(prefix + "norm", self.s.hidden)
        if head:
            self.add("lm_head.weight", self.s.vocabulary, self.s.hidden)


def text_config(s, architecture, model_type, **more):
    """What nearly every decoder's config.json holds."""
    config = {
        "architectures": [architecture],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "head_dim": s.head,
        "hidden_act": "silu",
        "hidden_size": s.hidden,
        "initializer_range": 0.02,
        "intermediate_size": s.wide,
        "max_position_embeddings": 512,
        "model_type": model_type,
        "num_attention_heads": s.heads,
        "num_hidden_layers": 2,
        "num_key_value_heads": s.kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.57.1",
        "use_cache": True,
        "vocab_size": s.vocabulary,
    }
    config.update(more)
    return config


def dense(s, architecture, model_type, bias=False, norms=False, tied=False, **more):
    model = Model(s, text_config(s, architecture, model_type, tie_word_embeddings=tied, **more))
    for layer in range(2):
        at = f"model.layers.{layer}."
        model.attention(at + "self_attn.", bias, norms)
        model.mlp(at + "mlp.", s.wide)
        model.norms_of(at)
    model.ends(head=not tied)
    return model


def llama(s):
    return dense(s, "LlamaForCausalLM", "llama", mlp_bias=False, pretraining_tp=1)


def mistral(s):
    return dense(s, "MistralForCausalLM", "mistral")


def qwen2(s):
    return dense(s, "Qwen2ForCausalLM", "qwen2", bias=True, tied=True, max_window_layers=2, use_sliding_window=False)


def qwen3(s):
    return dense(s, "Qwen3ForCausalLM", "qwen3", norms=True, tied=True, max_window_layers=2, use_sliding_window=False)


def mixtral(s):
    model = Model(
        s,
        text_config(
            s,
            "MixtralForCausalLM",
            "mixtral",
            intermediate_size=s.expert,
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=False,
            router_aux_loss_coef=0.02,
        ),
    )
    for layer in range(2):
        at = f"model.layers.{layer}."
        model.attention(at + "self_attn.")
        model.linear(at + "block_sparse_moe.gate", 4, s.hidden)
        for expert in range(4):
            model.mlp(f"{at}block_sparse_moe.experts.{expert}.", s.expert, ("w1", "w3", "w2"))
        model.norms_of(at)
    model.ends()
    return model


def qwen3_moe(s):
    model = Model(
        s,
        text_config(
            s,
            "Qwen3MoeForCausalLM",
            "qwen3_moe",
            decoder_sparse_step=1,
            mlp_only_layers=[0],
            moe_intermediate_size=s.expert,
            norm_topk_prob=True,
            num_experts=4,
            num_experts_per_tok=2,
            output_router_logits=False,
            router_aux_loss_coef=0.001,
            max_window_layers=2,
            use_sliding_window=False,
        ),
    )
    for layer in range(2):
        at = f"model.layers.{layer}."
        model.attention(at + "self_attn.", norms=True)
        if layer == 0:
            model.mlp(at + "mlp.", s.wide)
        else:
            model.linear(at + "mlp.gate", 4, s.hidden)
            for expert in range(4):
                model.mlp(f"{at}mlp.experts.{expert}.", s.expert)
        model.norms_of(at)
    model.ends()
    return model


KEY_HEADS, VALUE_HEADS = 2, 4


def delta_net(model, at, joined=False):
    """A gated delta net: Qwen3.5 has four projections, Qwen3-Next joins them to two."""
    s = model.s
    mixed = (2 * KEY_HEADS + VALUE_HEADS) * s.head
    if joined:
        model.linear(at + "in_proj_qkvz", mixed + VALUE_HEADS * s.head, s.hidden)
        model.linear(at + "in_proj_ba", 2 * VALUE_HEADS, s.hidden)
    else:
        model.linear(at + "in_proj_qkv", mixed, s.hidden)
        model.linear(at + "in_proj_z", VALUE_HEADS * s.head, s.hidden)
        model.linear(at + "in_proj_b", VALUE_HEADS, s.hidden)
        model.linear(at + "in_proj_a", VALUE_HEADS, s.hidden)
    model.add(at + "conv1d.weight", mixed, 1, 4)
    model.add(at + "A_log", VALUE_HEADS, dtype="BF16" if joined else "F32")
    model.add(at + "dt_bias", VALUE_HEADS)
    model.add(at + "norm.weight", s.head, dtype="BF16" if joined else "F32")
    model.linear(at + "out_proj", s.hidden, VALUE_HEADS * s.head)


def delta_net_config(s):
    return {
        "full_attention_interval": 2,
        "layer_types": ["linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": s.head,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_value_head_dim": s.head,
    }


def experts_config(s):
    return {
        "moe_intermediate_size": s.expert,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "shared_expert_intermediate_size": s.expert,
        "output_router_logits": False,
        "router_aux_loss_coef": 0.001,
    }


def hybrid_layer(model, at, layer, joined=False, experts=None):
    """experts: None for a dense MLP, "fused" for 3-D tensors, "split" for a matrix an expert."""
    s = model.s
    model.norm(at + "input_layernorm", s.hidden)
    if layer % 2 == 0:
        delta_net(model, at + "linear_attn.", joined)
    else:
        model.attention(at + "self_attn.", norms=True, gated=True)
    if experts is None:
        model.mlp(at + "mlp.", s.wide)
    else:
        model.linear(at + "mlp.gate", 4, s.hidden)
        if experts == "fused":
            model.add(at + "mlp.experts.gate_up_proj", 4, 2 * s.expert, s.hidden)
            model.add(at + "mlp.experts.down_proj", 4, s.hidden, s.expert)
        else:
            for expert in range(4):
                model.mlp(f"{at}mlp.experts.{expert}.", s.expert)
        model.mlp(at + "mlp.shared_expert.", s.expert)
        model.linear(at + "mlp.shared_expert_gate", 1, s.hidden)
    model.norm(at + "post_attention_layernorm", s.hidden)


def draft_layer(model, experts):
    """The layer of Qwen3.5 and Qwen3-Next that drafts tokens."""
    s = model.s
    model.linear("mtp.fc", s.hidden, 2 * s.hidden)
    hybrid_layer(model, "mtp.layers.0.", 1, experts=experts)
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        model.norm("mtp." + name, s.hidden)


def qwen3_next(s):
    model = Model(
        s,
        text_config(
            s,
            "Qwen3NextForCausalLM",
            "qwen3_next",
            decoder_sparse_step=1,
            mlp_only_layers=[],
            norm_topk_prob=True,
            partial_rotary_factor=0.25,
            **delta_net_config(s),
            **experts_config(s),
        ),
    )
    for layer in range(2):
        hybrid_layer(model, f"model.layers.{layer}.", layer, joined=True, experts="split")
    draft_layer(model, "split")
    model.ends()
    return model


def qwen3_5(s, experts=None):
    """With vision, whose 144 columns are no multiple of 32, as the published 4304 are not."""
    suffix, capital = ("_moe", "Moe") if experts else ("", "")
    name = f"Qwen3_5{capital}ForConditionalGeneration"
    text = text_config(s, name, f"qwen3_5{suffix}_text", attn_output_gate=True, mtp_num_hidden_layers=1)
    text.update(delta_net_config(s))
    if experts:
        del text["intermediate_size"]
        text.update(experts_config(s))
    for key in ("architectures", "rope_scaling", "rope_theta", "sliding_window", "torch_dtype"):
        del text[key]
    text["dtype"] = "bfloat16"
    text["rope_parameters"] = {
        "mrope_interleaved": True,
        "mrope_section": [2, 1, 1],
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "rope_type": "default",
    }
    wide, columns = 144, 36
    model = Model(
        s,
        {
            "architectures": [name],
            "image_token_id": 180,
            "model_type": "qwen3_5" + suffix,
            "text_config": text,
            "tie_word_embeddings": False,
            "transformers_version": "4.57.1",
            "video_token_id": 181,
            "vision_config": {
                "deepstack_visual_indexes": [],
                "depth": 1,
                "hidden_act": "gelu_pytorch_tanh",
                "hidden_size": columns,
                "in_channels": 3,
                "initializer_range": 0.02,
                "intermediate_size": wide,
                "model_type": "qwen3_5" + suffix,
                "num_heads": 2,
                "num_position_embeddings": 64,
                "out_hidden_size": s.hidden,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "temporal_patch_size": 2,
            },
            "vision_end_token_id": 183,
            "vision_start_token_id": 182,
        },
    )
    for layer in range(2):
        hybrid_layer(model, f"model.language_model.layers.{layer}.", layer, experts=experts)
    model.ends("model.language_model.")
    model.add("model.visual.patch_embed.proj.weight", columns, 3, 2, 4, 4)
    model.add("model.visual.patch_embed.proj.bias", columns)
    model.add("model.visual.pos_embed.weight", 64, columns)
    at = "model.visual.blocks.0."
    model.norm(at + "norm1", columns, bias=True)
    model.linear(at + "attn.qkv", 3 * columns, columns, bias=True)
    model.linear(at + "attn.proj", columns, columns, bias=True)
    model.norm(at + "norm2", columns, bias=True)
    model.linear(at + "mlp.linear_fc1", wide, columns, bias=True)
    model.linear(at + "mlp.linear_fc2", columns, wide, bias=True)
    model.norm("model.visual.merger.norm", columns, bias=True)
    model.linear("model.visual.merger.linear_fc1", 4 * columns, 4 * columns, bias=True)
    model.linear("model.visual.merger.linear_fc2", s.hidden, 4 * columns, bias=True)
    draft_layer(model, experts)
    return model


def latent_attention(model, at, low_rank):
    """DeepSeek's, with a query of low rank or not."""
    s = model.s
    heads, nope, rope, value, rank = 4, 32, 32, 32, 64
    if low_rank:
        model.linear(at + "q_a_proj", 96, s.hidden)
        model.norm(at + "q_a_layernorm", 96)
        model.linear(at + "q_b_proj", heads * (nope + rope), 96)
    else:
        model.linear(at + "q_proj", heads * (nope + rope), s.hidden)
    model.linear(at + "kv_a_proj_with_mqa", rank + rope, s.hidden)
    model.norm(at + "kv_a_layernorm", rank)
    model.linear(at + "kv_b_proj", heads * (nope + value), rank)
    model.linear(at + "o_proj", s.hidden, heads * value)


def deepseek(s, architecture, model_type, low_rank=True, indexer=False, drafts=True, **more):
    config = text_config(
        s,
        architecture,
        model_type,
        ep_size=1,
        first_k_dense_replace=1,
        kv_lora_rank=64,
        moe_intermediate_size=s.expert,
        moe_layer_freq=1,
        n_group=2,
        n_routed_experts=4,
        n_shared_experts=1,
        norm_topk_prob=True,
        num_experts_per_tok=2,
        num_key_value_heads=s.heads,
        num_nextn_predict_layers=1 if drafts else 0,
        q_lora_rank=96 if low_rank else None,
        qk_nope_head_dim=32,
        qk_rope_head_dim=32,
        routed_scaling_factor=2.5,
        scoring_func="sigmoid",
        topk_group=1,
        topk_method="noaux_tc",
        v_head_dim=32,
    )
    config.update(more)
    del config["head_dim"], config["sliding_window"]
    model = Model(s, config)

    def layer(at, sparse):
        model.norms_of(at)
        latent_attention(model, at + "self_attn.", low_rank)
        if indexer:
            model.linear(at + "self_attn.indexer.wq_b", 4 * 64, 96)
            model.linear(at + "self_attn.indexer.wk", 64, s.hidden)
            model.norm(at + "self_attn.indexer.k_norm", 64, bias=True)
            model.linear(at + "self_attn.indexer.weights_proj", 4, s.hidden)
        if not sparse:
            return model.mlp(at + "mlp.", s.wide)
        model.linear(at + "mlp.gate", 4, s.hidden)
        if config["topk_method"] == "noaux_tc":
            model.add(at + "mlp.gate.e_score_correction_bias", 4, dtype="F32")
        for expert in range(4):
            model.mlp(f"{at}mlp.experts.{expert}.", s.expert)
        model.mlp(at + "mlp.shared_experts.", s.expert)

    for number in range(2):
        layer(f"model.layers.{number}.", number > 0)
    if drafts:  # numbered on as if it were a layer of the model
        at = "model.layers.2."
        layer(at, True)
        model.add(at + "embed_tokens.weight", s.vocabulary, s.hidden)
        model.linear(at + "eh_proj", s.hidden, 2 * s.hidden)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            model.norm(at + name, s.hidden)
        model.add(at + "shared_head.head.weight", s.vocabulary, s.hidden)
    model.ends()
    return model


def deepseek_v2(s):
    return deepseek(
        s,
        "DeepseekV2ForCausalLM",
        "deepseek_v2",
        low_rank=False,
        drafts=False,
        scoring_func="softmax",
        topk_method="greedy",
    )


def deepseek_v3(s):
    return deepseek(s, "DeepseekV3ForCausalLM", "deepseek_v3")


def deepseek_v32(s):
    return deepseek(
        s, "DeepseekV32ForCausalLM", "deepseek_v32", indexer=True, index_head_dim=64, index_n_heads=4, index_topk=64
    )


def nemotron_h(s):
    """One layer of each kind: Mamba-2, MLP, attention, experts."""
    groups, inner = 2, s.mamba_heads * s.mamba_head
    mixed = inner + 2 * groups * s.mamba_state
    model = Model(
        s,
        text_config(
            s,
            "NemotronHForCausalLM",
            "nemotron_h",
            attention_head_dim=s.head,
            chunk_size=128,
            conv_kernel=4,
            expand=2,
            hidden_dropout=0.0,
            hybrid_override_pattern="M-*E",
            layer_norm_epsilon=1e-05,
            mamba_head_dim=s.mamba_head,
            mamba_hidden_act="silu",
            mamba_num_heads=s.mamba_heads,
            mamba_proj_bias=False,
            mlp_bias=False,
            mlp_hidden_act="relu2",
            moe_intermediate_size=s.expert,
            moe_shared_expert_intermediate_size=s.expert,
            n_group=1,
            n_groups=groups,
            n_routed_experts=4,
            n_shared_experts=1,
            norm_topk_prob=True,
            num_experts_per_tok=2,
            num_hidden_layers=4,
            num_logits_to_keep=1,
            rescale_prenorm_residual=True,
            residual_in_fp32=False,
            routed_scaling_factor=2.5,
            ssm_state_size=s.mamba_state,
            time_step_floor=0.0001,
            time_step_limit=[0.0, 1e30],
            time_step_max=0.1,
            time_step_min=0.001,
            topk_group=1,
            use_bias=False,
            use_conv_bias=True,
            use_mamba_kernels=True,
        ),
    )
    model.add("backbone.embeddings.weight", s.vocabulary, s.hidden)
    for layer, kind in enumerate("M-*E"):
        at = f"backbone.layers.{layer}."
        model.norm(at + "norm", s.hidden)
        at += "mixer."
        if kind == "M":
            model.linear(at + "in_proj", inner + mixed + s.mamba_heads, s.hidden)
            model.add(at + "conv1d.weight", mixed, 1, 4)
            model.add(at + "conv1d.bias", mixed)
            for name in ("A_log", "D", "dt_bias"):
                model.add(at + name, s.mamba_heads)
            model.norm(at + "norm", inner)
            model.linear(at + "out_proj", s.hidden, inner)
        elif kind == "-":
            model.mlp(at, s.wide, ("up_proj", "down_proj"))
        elif kind == "*":
            model.attention(at)
        else:
            model.linear(at + "gate", 4, s.hidden)
            model.add(at + "gate.e_score_correction_bias", 4, dtype="F32")
            for expert in range(4):
                model.mlp(f"{at}experts.{expert}.", s.expert, ("up_proj", "down_proj"))
            model.mlp(at + "shared_experts.", s.expert, ("up_proj", "down_proj"))
    model.norm("backbone.norm_f", s.hidden)
    model.add("lm_head.weight", s.vocabulary, s.hidden)
    return model


def bert(s):
    model = Model(
        s,
        {
            "architectures": ["BertModel"],
            "attention_probs_dropout_prob": 0.1,
            "classifier_dropout": None,
            "gradient_checkpointing": False,
            "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1,
            "hidden_size": s.hidden,
            "initializer_range": 0.02,
            "intermediate_size": s.wide,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": 64,
            "model_type": "bert",
            "num_attention_heads": s.heads,
            "num_hidden_layers": 2,
            "pad_token_id": 0,
            "position_embedding_type": "absolute",
            "torch_dtype": "float32",
            "transformers_version": "4.57.1",
            "type_vocab_size": 2,
            "use_cache": True,
            "vocab_size": s.vocabulary,
        },
    )
    for name, rows in (("word", s.vocabulary), ("position", 64), ("token_type", 2)):
        model.add(f"embeddings.{name}_embeddings.weight", rows, s.hidden)
    model.norm("embeddings.LayerNorm", s.hidden, bias=True)
    for layer in range(2):
        at = f"encoder.layer.{layer}."
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            model.linear(at + "attention." + name, s.hidden, s.hidden, bias=True)
        model.norm(at + "attention.output.LayerNorm", s.hidden, bias=True)
        model.linear(at + "intermediate.dense", s.wide, s.hidden, bias=True)
        model.linear(at + "output.dense", s.hidden, s.wide, bias=True)
        model.norm(at + "output.LayerNorm", s.hidden, bias=True)
    model.linear("pooler.dense", s.hidden, s.hidden, bias=True)
    model.tensors = {name: ("F32", shape) for name, (_, shape) in model.tensors.items()}
    return model


# The family whose rules each follows, as fp8-convert --model calls it, and what makes it.
MODELS = {
    "llama": ("llama", llama),
    "mistral": ("llama", mistral),
    "mixtral": ("llama", mixtral),
    "qwen2": ("qwen3", qwen2),
    "qwen3": ("qwen3", qwen3),
    "qwen3_moe": ("qwen3-moe", qwen3_moe),
    "qwen3_next": ("qwen3_5", qwen3_next),
    "qwen3_5": ("qwen3_5", qwen3_5),
    "qwen3_5_moe": ("qwen3_5", functools.partial(qwen3_5, experts="fused")),
    "deepseek_v2": ("deepseek-v3", deepseek_v2),
    "deepseek_v3": ("deepseek-v3", deepseek_v3),
    "deepseek_v32": ("deepseek-v3", deepseek_v32),
    "nemotron_h": ("nemotron-h", nemotron_h),
    "bert": ("bert", bert),
}


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


@functools.lru_cache(maxsize=None)
def noise(dtype):
    """65 537 heavy-tailed numbers as bytes; a prime, so that no two rows of a tensor begin at the same one."""
    source = random.Random(65537)
    values = [source.gauss(0, 0.02) * (source.choice((8, 24)) if source.random() < 0.004 else 1) for _ in range(65537)]
    words = struct.unpack("<65537I", struct.pack("<65537f", *values))
    if dtype == "F32":
        return struct.pack("<65537I", *words)
    return struct.pack("<65537H", *[(word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words])


def content(seed, name, dtype, shape):
    """The bytes of a tensor: the same for the same seed and name everywhere."""
    source, size = random.Random(f"{seed} {name}"), count(shape) * WIDTH[dtype]
    if dtype not in ("BF16", "F32"):
        return bytes(source.randrange(2) for _ in range(size)) if dtype == "BOOL" else source.randbytes(size)
    if name.endswith("norm.weight") or name.endswith("LayerNorm.weight"):
        one = struct.pack("<f", 1.0)[4 - WIDTH[dtype] :]
        return one * count(shape)
    data = noise(dtype)
    start = source.randrange(65537) * WIDTH[dtype]
    return (data[start:] + data * (size // len(data) + 1))[:size]


def write_file(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def write(folder, name, seed=1, shards=2, extra=None, sizes=RAGGED):
    """A folder of that model; extra: more tensors, {name: (dtype, shape)}. Returns {name: (dtype, shape, bytes)}."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True)
    model = MODELS[name][1](sizes)
    model.tensors.update(extra or {})
    tensors = {key: (dtype, shape, content(seed, key, dtype, shape)) for key, (dtype, shape) in model.tensors.items()}
    parts, names = [{} for _ in range(shards)], list(tensors)
    for i, key in enumerate(names):
        parts[i * shards // len(names)][key] = tensors[key]
    map_, total = {}, sum(len(data) for _, _, data in tensors.values())
    for i, part in enumerate(parts):
        file = "model.safetensors" if shards == 1 else f"model-{i + 1:05}-of-{shards:05}.safetensors"
        write_file(folder / file, part)
        map_.update({key: file for key in part})
    if shards > 1:
        index = {"metadata": {"total_size": total}, "weight_map": map_}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(model.config, indent=2), encoding="utf-8")
    (folder / "generation_config.json").write_text('{"do_sample": true}', encoding="utf-8")
    return tensors


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for wanted in sys.argv[2:] or MODELS:
        write(pathlib.Path(sys.argv[1]) / wanted, wanted)
