// syrinx_context_*, prefill and decode, state, hand-over, probes.
#include "api/objects.h"

using namespace syrinx;

namespace {

// The wanted rows; none given means the last one.
Output output_rows(const int32_t * rows, const int32_t & last, int32_t n_rows, float * hidden, float * logits) {
    if (!rows && n_rows == 1) {
        rows = &last;
    }
    if (n_rows < 0 || (n_rows > 0 && !rows)) {
        fail(SYRINX_ERR_INVALID_ARGUMENT, "n_rows is %d with rows %s; rows may be NULL for one row, the last", n_rows,
             rows ? "given" : "NULL");
    }
    return {rows, n_rows, hidden, logits};
}

syrinx_status prefill(syrinx_context * context, const Input & in, const int32_t * rows, int32_t n_rows, float * hidden,
                      float * logits) {
    return call<ContextObject>(context, [&](ContextObject & self) {
        require_pointer(in.tokens ? static_cast<const void *>(in.tokens) : in.embds, "the input");
        const int32_t last = in.n - 1;
        self.context.prefill(in, output_rows(rows, last, n_rows, hidden, logits));
    });
}

template <class F>
int32_t ask(syrinx_context * context, F && value) {
    const auto object = find<ContextObject>(context);
    return object ? value(object->context) : 0;
}

}  // namespace

void syrinx_context_default_params(syrinx_context_params * params) {
    if (params) {
        *params = {};
        params->struct_size = sizeof *params;
        params->n_batch = 512;
        params->n_outputs = 1;
        params->n_seq_max = 1;
        params->kv_unified = 1;
        params->poll = 50;
        params->type_k = SYRINX_KV_F16;
        params->type_v = SYRINX_KV_F16;
        params->flash_attention = 1;
    }
}

syrinx_status syrinx_context_open(syrinx_model * model, const syrinx_context_params * params,
                                  syrinx_context ** context) {
    if (context) {
        *context = nullptr;
    }
    return call<ModelObject>(model, [&](ModelObject & self) {
        require_pointer(context, "context");
        syrinx_context_params p;
        syrinx_context_default_params(&p);
        if (params) {
            require_struct(params, "params");
            p = *params;
        }
        require_flag("kv_unified", p.kv_unified);
        require_flag("flash_attention", p.flash_attention);
        require_flag("full_swa", p.full_swa);
        require_flag("embeds_are_scaled", p.embeds_are_scaled);
        *context = static_cast<syrinx_context *>(add_handle(std::make_shared<ContextObject>(self.model, p)));
    });
}

void syrinx_context_close(syrinx_context * context) { close_handle(context, Kind::kContext); }

int32_t syrinx_context_n_embd(syrinx_context * context) {
    return ask(context, [](const Context & c) { return c.model().facts().n_embd; });
}
int32_t syrinx_context_n_embd_out(syrinx_context * context) {
    return ask(context, [](const Context & c) { return c.model().facts().n_embd_out; });
}
int32_t syrinx_context_n_vocab(syrinx_context * context) {
    return ask(context, [](const Context & c) { return c.model().facts().n_vocab; });
}
int32_t syrinx_context_n_ctx(syrinx_context * context) {
    return ask(context, [](const Context & c) { return c.n_ctx(); });
}
int32_t syrinx_context_n_past(syrinx_context * context) {
    return ask(context, [](const Context & c) { return c.n_past(); });
}

syrinx_status syrinx_context_reset(syrinx_context * context) {
    return call<ContextObject>(context, [](ContextObject & self) { self.context.reset(); });
}

syrinx_status syrinx_context_cancel(syrinx_context * context) {
    const auto object = find<ContextObject>(context);
    if (!object) {
        return SYRINX_ERR_CLOSED;
    }
    object->cancel();
    return SYRINX_OK;
}

syrinx_status syrinx_prefill_embeds(syrinx_context * context, const float * embds, int32_t n, const int32_t * rows,
                                    int32_t n_rows, float * hidden, float * logits) {
    return prefill(context, {nullptr, embds, n}, rows, n_rows, hidden, logits);
}

syrinx_status syrinx_prefill_tokens(syrinx_context * context, const int32_t * tokens, int32_t n, const int32_t * rows,
                                    int32_t n_rows, float * hidden, float * logits) {
    return prefill(context, {tokens, nullptr, n}, rows, n_rows, hidden, logits);
}

syrinx_status syrinx_decode_embed(syrinx_context * context, const float * embd, float * logits, float * hidden) {
    return prefill(context, {nullptr, embd, 1}, nullptr, 1, hidden, logits);
}

syrinx_status syrinx_decode_token(syrinx_context * context, int32_t token, float * logits, float * hidden) {
    return prefill(context, {&token, nullptr, 1}, nullptr, 1, hidden, logits);
}

syrinx_status syrinx_state_save(syrinx_context * context, void * blob, size_t * size) {
    return call<ContextObject>(context, [&](ContextObject & self) {
        require_pointer(size, "size");
        const std::vector<uint8_t> saved = self.context.save_state();
        write_sized(saved.data(), saved.size(), static_cast<uint8_t *>(blob), size, "bytes");
    });
}

syrinx_status syrinx_state_load(syrinx_context * context, const void * blob, size_t size) {
    return call<ContextObject>(context, [&](ContextObject & self) {
        require_pointer(blob, "blob");
        self.context.load_state(static_cast<const uint8_t *>(blob), size);
    });
}

syrinx_status syrinx_handover(syrinx_context * from, syrinx_context * to, syrinx_handover_report * report) {
    return call<ContextObject>(to, [&](ContextObject & receiver) {
        if (report) {
            require_struct(report, "report");
        }
        const auto sender = find<ContextObject>(from);
        if (!sender || sender.get() == &receiver) {
            fail(SYRINX_ERR_INVALID_ARGUMENT, "from is %s", sender ? "the same context as to" : "no open context");
        }
        const Entered entered(*sender);
        if (entered.status() != SYRINX_OK) {
            fail(entered.status(), "the context to hand over from is busy or closed");
        }
        const syrinx_handover_report done = hand_over(sender->context, receiver.context);
        if (report) {
            *report = done;
        }
    });
}

syrinx_status syrinx_probe_start(syrinx_context * context, const char * stages) {
    return call<ContextObject>(context, [&](ContextObject & self) {
        require_pointer(stages, "stages");
        self.context.start_probe(stages);
    });
}

syrinx_status syrinx_probe_write(syrinx_context * context, const char * path) {
    return call<ContextObject>(context, [&](ContextObject & self) {
        require_pointer(path, "path");
        self.context.write_probe(path);
    });
}
