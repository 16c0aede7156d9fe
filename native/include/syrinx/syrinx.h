// Syrinx: speech and language models on the phone, on llama.cpp and ggml. The C ABI, and the only public surface.
//
// Rules that hold for every function here:
//  * No C++ exception and no abort crosses this boundary. A failure is a status; syrinx_last_error() says what
//    happened and what to do about it.
//  * Handles are opaque and never dereferenced by the caller. A closed or foreign handle is answered with
//    SYRINX_ERR_CLOSED; it is never read. Handles may be closed in any order and from any thread: closing cancels the
//    call that is running on the handle, waits for it, and frees; a sampler in use is only let go of when that call
//    ends. Closing NULL or a closed handle does nothing.
//  * One call at a time per context or sampler; a second one from another thread is answered with SYRINX_ERR_BUSY.
//    syrinx_context_cancel, *_close and syrinx_last_error may be called at any time from any thread.
//  * Buffers belong to the caller, unless a comment says otherwise; the library keeps no pointer to them after a call.
//    Matrices are row-major float32: [rows][columns].
//  * On failure, output buffers and output handles are unspecified respectively NULL, and the object is as it was
//    before the call, unless a comment says otherwise.
//  * Text is UTF-8.
#ifndef SYRINX_SYRINX_H
#define SYRINX_SYRINX_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#  if defined(SYRINX_BUILD)
#    define SYRINX_API __declspec(dllexport)
#  else
#    define SYRINX_API __declspec(dllimport)
#  endif
#else
#  define SYRINX_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

// Raised whenever a struct, an enum value or a signature below changes meaning.
#define SYRINX_ABI_VERSION 1

typedef enum syrinx_status {
    SYRINX_OK = 0,
    SYRINX_ERR_INVALID_ARGUMENT = 1,  // an argument or option is out of range, NULL, or contradicts another
    SYRINX_ERR_NOT_FOUND = 2,         // no such file
    SYRINX_ERR_IO = 3,                // reading or writing a file failed
    SYRINX_ERR_BAD_MODEL = 4,         // the file is not a model, or is damaged
    SYRINX_ERR_UNSUPPORTED = 5,       // a sound request this model, build or backend cannot serve
    SYRINX_ERR_OUT_OF_MEMORY = 6,
    SYRINX_ERR_CONTEXT_FULL = 7,       // more positions than n_ctx holds
    SYRINX_ERR_CANCELLED = 8,          // by syrinx_context_cancel, a callback, or close
    SYRINX_ERR_BAD_STATE = 9,          // a sequence state is damaged, truncated or not one of ours
    SYRINX_ERR_INCOMPATIBLE = 10,      // a sound sequence state, for a context with other settings or weights
    SYRINX_ERR_BUSY = 11,              // another thread is inside a call on this handle
    SYRINX_ERR_CLOSED = 12,            // the handle is closed, or was never one of this kind
    SYRINX_ERR_ABI = 13,               // header and library differ in SYRINX_ABI_VERSION
    SYRINX_ERR_BUFFER_TOO_SMALL = 14,  // the needed size was written to the size argument
    SYRINX_ERR_INTERNAL = 15           // a bug of ours or of llama.cpp's; the text says where
} syrinx_status;

typedef struct syrinx_engine syrinx_engine;    // log sink and error text for everything opened through it
typedef struct syrinx_model syrinx_model;      // weights and vocabulary, on one device; shared by its contexts
typedef struct syrinx_context syrinx_context;  // one sequence: KV cache and recurrent state, and a compute placement
typedef struct syrinx_sampler syrinx_sampler;  // logits -> token, with its random state

// A short name such as "SYRINX_ERR_BUSY". Static storage; never NULL.
SYRINX_API const char * syrinx_status_name(int32_t status);

// Library version "major.minor.patch+llama.cpp-commit". Static storage.
SYRINX_API const char * syrinx_version(void);

// The ABI version that the library was built with.
SYRINX_API uint32_t syrinx_abi_version(void);

// What went wrong in the last failed call on `handle` (engine, model, context or sampler): one or two sentences, no
// newline at the end; "" when no call has failed. The pointer is the calling thread's and stays valid until this
// thread calls syrinx_last_error again. Works on a handle while another thread is inside a call.
SYRINX_API const char * syrinx_last_error(const void * handle);

// ---------------------------------------------------------------------------------------------------------- engine

typedef enum syrinx_log_level {
    SYRINX_LOG_DEBUG = 0,
    SYRINX_LOG_INFO = 1,
    SYRINX_LOG_WARN = 2,
    SYRINX_LOG_ERROR = 3
} syrinx_log_level;

// Called from any thread, one whole message at a time, never concurrently. Must not call back into Syrinx.
typedef void (*syrinx_log_callback)(syrinx_log_level level, const char * message, void * user_data);

// Progress of a long call. `stage` is a static name ("load"), `fraction` runs from 0 to 1.
// Return 0 to go on, anything else to cancel the call (it then ends with SYRINX_ERR_CANCELLED).
typedef int32_t (*syrinx_progress_callback)(const char * stage, float fraction, void * user_data);

// `abi_version` is SYRINX_ABI_VERSION as the caller was compiled with. llama.cpp has one log sink per process: the
// engine created last receives its lines. `log` may be NULL (silence). Errors: ABI, INVALID_ARGUMENT, OUT_OF_MEMORY.
SYRINX_API syrinx_status syrinx_engine_create(uint32_t abi_version, syrinx_log_callback log, void * log_user_data,
                                              syrinx_engine ** engine);
SYRINX_API void syrinx_engine_close(syrinx_engine * engine);

// Devices this build and machine can compute on, as a JSON array of
// {"name","description","type":"cpu|gpu|igpu|accel","memory_total","memory_free"} (bytes); the CPU's has "cpu_variant"
// too: the instruction-set level whose module computes, or "static" where there is but one.
// Writes at most `*size` bytes with a final NUL; sets `*size` to what is needed, the NUL included.
// `json` may be NULL to ask for the size. Errors: BUFFER_TOO_SMALL, UNSUPPORTED (no CPU variant for this processor).
SYRINX_API syrinx_status syrinx_engine_devices(syrinx_engine * engine, char * json, size_t * size);

// ----------------------------------------------------------------------------------------------------------- model

typedef struct syrinx_model_params {
    uint32_t struct_size;   // sizeof(syrinx_model_params), for the ABI check
    const char * device;    // name from syrinx_engine_devices that holds the weights; NULL or "" is the CPU
    int32_t n_gpu_layers;   // layers placed on a device other than the CPU; -1 all. Ignored for the CPU.
    int32_t use_mmap;       // 1 maps the file (contexts and processes share one copy); 0 reads it
    int32_t use_repack;     // 1 lets the CPU backend keep quantized weights in a faster layout (a copy, not mapped)
    int32_t check_tensors;  // 1 scans the weights for invalid values while loading
    syrinx_progress_callback progress;  // may be NULL
    void * progress_user_data;
} syrinx_model_params;

SYRINX_API void syrinx_model_default_params(syrinx_model_params * params);

// Opens a GGUF file. Before llama.cpp sees it, the whole file is checked: magic, version, counts, strings, types, and
// that every tensor lies inside the file without overlap; a damaged file is a BAD_MODEL that names the key or tensor
// and the bytes missing. `params` may be NULL for the defaults. The error text is the engine's.
// Errors: NOT_FOUND, IO, BAD_MODEL, UNSUPPORTED, OUT_OF_MEMORY, CANCELLED, INVALID_ARGUMENT.
SYRINX_API syrinx_status syrinx_model_open(syrinx_engine * engine, const char * path,
                                           const syrinx_model_params * params, syrinx_model ** model);
// Contexts keep what they need of the model alive; it is freed with the last of them.
SYRINX_API void syrinx_model_close(syrinx_model * model);

// Only the check that syrinx_model_open runs first: no weights are read, llama.cpp is not called.
SYRINX_API syrinx_status syrinx_model_check(syrinx_engine * engine, const char * path);

typedef enum syrinx_structure {
    SYRINX_DENSE = 0,      // attention only
    SYRINX_RECURRENT = 1,  // recurrent state only
    SYRINX_HYBRID = 2      // attention layers and recurrent layers
} syrinx_structure;

typedef enum syrinx_rope {
    SYRINX_ROPE_NONE = 0,
    SYRINX_ROPE_NORM = 1,
    SYRINX_ROPE_NEOX = 2,
    SYRINX_ROPE_MROPE = 3,
    SYRINX_ROPE_IMROPE = 4,
    SYRINX_ROPE_VISION = 5
} syrinx_rope;

// How an embedding row must be scaled before it is given to syrinx_prefill_embeds.
typedef enum syrinx_embedding_scale {
    SYRINX_SCALE_NONE = 0,         // rows of the token table as they are
    SYRINX_SCALE_TOKENS_ONLY = 1,  // the graph multiplies looked-up rows by `embedding_multiplier`, but not given rows
    SYRINX_SCALE_FOLDED = 2        // a multiplier was folded into this file's token table at conversion: rows of the
                                   // original checkpoint lack it
} syrinx_embedding_scale;

typedef struct syrinx_model_facts {
    uint32_t struct_size;        // in: sizeof(syrinx_model_facts)
    char architecture[64];       // as the loaded model reports it, e.g. "qwen3"
    syrinx_structure structure;  // as the loaded model reports it, not from its name
    syrinx_rope rope;
    int32_t n_layer;
    int32_t n_embd;             // width of an input embedding row
    int32_t n_embd_out;         // width of a hidden row
    int32_t n_head, n_head_kv;  // of the first attention layer
    int32_t n_vocab;            // width of a logits row
    int32_t n_ctx_train;
    int32_t n_swa;          // sliding window in tokens; 0 none
    int32_t has_tokenizer;  // 0: text functions answer UNSUPPORTED
    int32_t has_chat_template;
    syrinx_embedding_scale embedding_scale;
    float embedding_multiplier;  // for SYRINX_SCALE_TOKENS_ONLY; else 1
    uint64_t n_params;
    uint64_t n_bytes;      // of tensor data
    uint64_t fingerprint;  // XXH64 of the GGUF header and tensor table; equal files, equal number
} syrinx_model_facts;

SYRINX_API syrinx_status syrinx_model_get_facts(syrinx_model * model, syrinx_model_facts * facts);

// The same as JSON, with "bytes_by_type": {"f32": {"tensors": n, "params": n, "bytes": n}, ...} and "metadata" (scalar
// keys and short strings). Sizing as in syrinx_engine_devices.
SYRINX_API syrinx_status syrinx_model_get_facts_json(syrinx_model * model, char * json, size_t * size);

// Looks token ids up in the model's token table and scales them so that prefilling these rows equals prefilling the
// ids, for every architecture. embds: [n][n_embd]. Errors: INVALID_ARGUMENT (id out of range), UNSUPPORTED (no table).
SYRINX_API syrinx_status syrinx_embed_tokens(syrinx_model * model, const int32_t * tokens, int32_t n, float * embds);

// ------------------------------------------------------------------------------------------------------------ text

// tokens may be NULL to ask for the count. `*n` in: capacity, out: tokens written or needed.
// add_special: BOS/EOS as the model wants them. parse_special: 1 maps "<|im_start|>" and the like to their ids; give
// 0 for text that a user typed. Errors: UNSUPPORTED (no tokenizer), BUFFER_TOO_SMALL, INVALID_ARGUMENT (not UTF-8).
SYRINX_API syrinx_status syrinx_tokenize(syrinx_model * model, const char * text, size_t text_bytes,
                                         int32_t add_special, int32_t parse_special, int32_t * tokens, int32_t * n);

// The bytes of the tokens, which may end inside a UTF-8 character. special: 1 shows control tokens. Sizing as above,
// without a final NUL. Errors: UNSUPPORTED, BUFFER_TOO_SMALL, INVALID_ARGUMENT.
SYRINX_API syrinx_status syrinx_detokenize(syrinx_model * model, const int32_t * tokens, int32_t n, int32_t special,
                                           char * text, size_t * size);

typedef struct syrinx_message {
    const char * role;  // "system", "user", "assistant"
    const char * content;
} syrinx_message;

// Renders messages with the model's own Jinja chat template, and tokenizes the result: text that came from `content`
// never becomes a control token, whatever it spells. `text` (may be NULL with text_size NULL) receives the rendered
// prompt with a final NUL; `tokens` as in syrinx_tokenize.
// Errors: UNSUPPORTED (no template, or one that refuses these messages), BUFFER_TOO_SMALL, INVALID_ARGUMENT.
SYRINX_API syrinx_status syrinx_apply_chat_template(syrinx_model * model, const syrinx_message * messages,
                                                    int32_t n_messages, int32_t add_generation_prompt, char * text,
                                                    size_t * text_size, int32_t * tokens, int32_t * n);

// --------------------------------------------------------------------------------------------------------- context

typedef enum syrinx_kv_type {
    SYRINX_KV_F16 = 0,
    SYRINX_KV_F32 = 1,
    SYRINX_KV_BF16 = 2,
    SYRINX_KV_Q8_0 = 3,
    SYRINX_KV_Q4_0 = 4
} syrinx_kv_type;

typedef struct syrinx_context_params {
    uint32_t struct_size;       // sizeof(syrinx_context_params)
    int32_t n_ctx;              // positions the context holds; 0 is the model's training length, at most 8192
    int32_t n_batch;            // rows computed at once; memory grows with it. At least 1; more than n_ctx is n_ctx
    int32_t n_outputs;          // of those, rows with results; memory grows with it times n_vocab. At least 1. Asking
                                // for more is no error: the rows are then computed in smaller batches
    int32_t n_seq_max;          // layout only: this API drives sequence 0
    int32_t kv_unified;         // layout only; both ends of a hand-over must agree
    int32_t n_threads;          // for single rows; 0 is half the machine's hardware threads, 1 to 4
    int32_t n_threads_batch;    // for several rows; 0 as n_threads
    int32_t poll;               // how eagerly idle threads wait for work: 0 sleep at once .. 100 spin
    int32_t type_k, type_v;     // syrinx_kv_type
    int32_t flash_attention;    // 1 on, 0 off. Decides the layout of V. A quantized V needs 1.
    int32_t full_swa;           // 1 keeps the whole sequence of sliding-window layers (needed to rewind)
    int32_t embeds_are_scaled;  // 1: the caller's embedding rows carry the model's multiplier (see embedding_scale).
                                // Where the model has one and this is 0, syrinx_prefill_embeds refuses.
} syrinx_context_params;

SYRINX_API void syrinx_context_default_params(syrinx_context_params * params);

// Computes where the model's weights lie. Several contexts may share one model. The error text is the model's.
// Errors: INVALID_ARGUMENT, UNSUPPORTED, OUT_OF_MEMORY.
SYRINX_API syrinx_status syrinx_context_open(syrinx_model * model, const syrinx_context_params * params,
                                             syrinx_context ** context);
SYRINX_API void syrinx_context_close(syrinx_context * context);

SYRINX_API int32_t syrinx_context_n_embd(syrinx_context * context);  // 0 on a closed handle
SYRINX_API int32_t syrinx_context_n_embd_out(syrinx_context * context);
SYRINX_API int32_t syrinx_context_n_vocab(syrinx_context * context);
SYRINX_API int32_t syrinx_context_n_ctx(syrinx_context * context);
SYRINX_API int32_t syrinx_context_n_past(syrinx_context * context);  // positions held

// Forgets the sequence: the next call starts at position 0, and gives what it would give in a new context.
SYRINX_API syrinx_status syrinx_context_reset(syrinx_context * context);

// Ends the call that is running on the context, if there is one, within one graph node on the CPU. That call returns
// CANCELLED. Rows it had already computed are forgotten, so that the context is as before the call; a model with
// recurrent state that cannot go back is reset, and the error text says so.
SYRINX_API syrinx_status syrinx_context_cancel(syrinx_context * context);

// Appends rows to the sequence. rows[n_rows] are the indices (ascending, < n) of the rows whose results are wanted;
// nothing else is computed for output. hidden: [n_rows][n_embd_out], the final hidden state as the output head sees
// it; logits: [n_rows][n_vocab]. Either may be NULL. rows NULL with n_rows 1 means the last row.
// Positions continue from n_past; models with M-RoPE get the same position on every text axis.
// Errors: CONTEXT_FULL (nothing was appended), CANCELLED, INVALID_ARGUMENT (a row, named, with NaN, Inf, or a sum of
// squares beyond float), UNSUPPORTED (embedding multiplier, see embeds_are_scaled).
SYRINX_API syrinx_status syrinx_prefill_embeds(syrinx_context * context, const float * embds, int32_t n,
                                               const int32_t * rows, int32_t n_rows, float * hidden, float * logits);
SYRINX_API syrinx_status syrinx_prefill_tokens(syrinx_context * context, const int32_t * tokens, int32_t n,
                                               const int32_t * rows, int32_t n_rows, float * hidden, float * logits);

// One row: the same as a prefill of one with its result. logits, hidden may be NULL.
SYRINX_API syrinx_status syrinx_decode_embed(syrinx_context * context, const float * embd, float * logits,
                                             float * hidden);
SYRINX_API syrinx_status syrinx_decode_token(syrinx_context * context, int32_t token, float * logits, float * hidden);

// ----------------------------------------------------------------------------------------- sequence state, hand-over

// A state blob: 64-byte header (magic, payload length, XXH64 of the payload and of the header, model fingerprint,
// settings that decide the layout, n_past), then llama.cpp's own sequence state. Logits, hidden rows and samplers are not part of it.
// Sizing as in syrinx_engine_devices.
SYRINX_API syrinx_status syrinx_state_save(syrinx_context * context, void * blob, size_t * size);

// Replaces the context's sequence. The blob is verified whole before the context is touched: BAD_STATE (magic,
// length, checksums) and INCOMPATIBLE (weights, KV type, flash attention and with it the V layout, n_seq_max,
// kv_unified, full_swa, more positions than n_ctx; the text names which) leave the context as it was.
SYRINX_API syrinx_status syrinx_state_load(syrinx_context * context, const void * blob, size_t size);

typedef struct syrinx_handover_report {
    uint32_t struct_size;  // in: sizeof(syrinx_handover_report)
    uint64_t bytes;        // moved, header included
    double save_ms;        // copy out of `from`, and checksum
    double load_ms;        // verification, and copy into `to`
    int32_t n_past;
} syrinx_handover_report;

// Moves the sequence of `from` into `to` (state_save, verification and state_load in one call); bit-exact. `from`
// keeps its copy. The error text is `to`'s. `report` may be NULL. Errors as in syrinx_state_load, and BUSY for either.
SYRINX_API syrinx_status syrinx_handover(syrinx_context * from, syrinx_context * to, syrinx_handover_report * report);

// ---------------------------------------------------------------------------------------------------------- probes

// Captures named stages of the following prefills and decodes into a GGUF file, one F32 tensor a stage, rows in the
// order computed: "embeds", "layer.<i>.hidden", "hidden", "logits". `stages` is a comma-separated list; "layer.*.hidden"
// and "all" are understood. Rows that were not asked for as output are missing from the last layer on.
// Errors: INVALID_ARGUMENT (the unknown name, and the names there are).
SYRINX_API syrinx_status syrinx_probe_start(syrinx_context * context, const char * stages);
// Writes what was captured and stops. The file appears whole or not at all. Errors: IO, INVALID_ARGUMENT (not started;
// the path is the model's own file, a folder, device or pipe).
SYRINX_API syrinx_status syrinx_probe_write(syrinx_context * context, const char * path);

// --------------------------------------------------------------------------------------------------------- sampler

typedef struct syrinx_sampler_params {
    uint32_t struct_size;      // sizeof(syrinx_sampler_params)
    float temperature;         // 0: greedy after the repetition penalty; < 0 is INVALID_ARGUMENT
    int32_t top_k;             // 0 off; more than the vocabulary is the whole vocabulary
    float top_p;               // 1 off; 0 keeps the best token only
    float repetition_penalty;  // 1 off; must be > 0
    int32_t penalty_window;    // the last n accepted tokens; 0 off; -1 all of them
    uint64_t seed;
} syrinx_sampler_params;

SYRINX_API void syrinx_sampler_default_params(syrinx_sampler_params * params);

// Order and rules are Hugging Face's: repetition penalty (once per distinct id: negative logits multiplied, positive
// divided), temperature, top-k (ties at the k-th kept), top-p, multinomial. Random numbers: PCG32 (XSH-RR 64/32);
// weights are integers, so that the same logits and seed give the same token on every target.
// The error text of a failed create is the engine's.
SYRINX_API syrinx_status syrinx_sampler_create(syrinx_engine * engine, const syrinx_sampler_params * params,
                                               syrinx_sampler ** sampler);
SYRINX_API void syrinx_sampler_close(syrinx_sampler * sampler);
SYRINX_API syrinx_status syrinx_sampler_reset(syrinx_sampler * sampler);  // history and random state as at creation

// Chooses a token; does not put it into the history. Errors: INVALID_ARGUMENT (n < 1, NaN or +Inf at a named index, or
// no finite logit).
SYRINX_API syrinx_status syrinx_sampler_sample(syrinx_sampler * sampler, const float * logits, int32_t n,
                                               int32_t * token);
SYRINX_API syrinx_status syrinx_sampler_accept(syrinx_sampler * sampler, int32_t token);

// The distribution that sample would draw from: probs[n], exact zeros outside the kept set. Advances nothing.
SYRINX_API syrinx_status syrinx_sampler_probs(syrinx_sampler * sampler, const float * logits, int32_t n, float * probs);

// ------------------------------------------------------------------------------------------------------ generation

typedef enum syrinx_finish {
    SYRINX_FINISH_EOS = 0,     // the model ended its turn
    SYRINX_FINISH_STOP = 1,    // a stop string appeared; it is not part of the text
    SYRINX_FINISH_LENGTH = 2,  // max_tokens
    SYRINX_FINISH_CONTEXT = 3  // n_ctx is full
} syrinx_finish;

// A piece of text, always whole UTF-8 characters, no final NUL. Return 0 to go on, anything else to cancel.
typedef int32_t (*syrinx_text_callback)(const char * text, size_t bytes, void * user_data);

typedef struct syrinx_generate_params {
    uint32_t struct_size;       // sizeof(syrinx_generate_params)
    int32_t max_tokens;         // >= 1
    const char * const * stop;  // n_stop strings; a possible beginning of one is held back until it is decided
    int32_t n_stop;
    syrinx_text_callback on_text;  // may be NULL
    void * user_data;
} syrinx_generate_params;

typedef struct syrinx_generate_result {
    uint32_t struct_size;  // in: sizeof(syrinx_generate_result)
    syrinx_finish finish;
    int32_t n_prompt, n_generated;              // tokens; n_generated without the end-of-turn token
    double prefill_ms, handover_ms, decode_ms;  // decode: from the first sampled token to the last
    uint64_t handover_bytes;
} syrinx_generate_result;

SYRINX_API void syrinx_generate_default_params(syrinx_generate_params * params);

// Prefills `tokens` in `prefill`, hands the sequence over to `decode` (skipped if they are the same context), and
// generates there. Both start from an empty sequence, and the sampler from its seed with the prompt as its history. Ids are written to out_tokens (may be NULL; capacity max_tokens).
// Invalid bytes in what the model says become U+FFFD. On CANCELLED, `result` tells how far it came.
// The error text is `decode`'s.
SYRINX_API syrinx_status syrinx_generate(syrinx_context * prefill, syrinx_context * decode, syrinx_sampler * sampler,
                                         const int32_t * tokens, int32_t n, const syrinx_generate_params * params,
                                         int32_t * out_tokens, syrinx_generate_result * result);

#ifdef __cplusplus
}
#endif
#endif
