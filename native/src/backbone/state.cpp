// Sequence state as a blob that can be verified before it touches a context, and the hand-over built on it.
//
// llama.cpp's own blob carries neither length nor checksum nor settings: a truncated one wipes the sequence, a flipped
// byte is taken, and a mismatch is only logged. Its ON_DEVICE flag, whose blobs abort in another context, is not used.
#include <chrono>
#include <cstddef>
#include <cstring>

#include <xxhash.h>

#include "backbone/context.h"
#include "backbone/runtime.h"
#include "core/error.h"
#include "llama.h"

namespace syrinx {

namespace {

constexpr char kBlobMagic[8] = {'S', 'Y', 'R', 'X', 'S', 'E', 'Q', '1'};
constexpr llama_seq_id kSequence = 0;

// Little-endian, as every target is. Bytes, not enums: what is read is untrusted.
struct BlobHeader {
    char magic[8];
    uint64_t payload_bytes;
    uint64_t payload_xxh64;
    uint64_t fingerprint;
    int32_t n_past;
    int32_t n_seq_max;
    int32_t n_batch;
    uint8_t type_k, type_v, flash_attention, kv_unified;
    uint8_t full_swa, reserved[7];
    uint64_t header_xxh64;  // of everything before it
};
static_assert(sizeof(BlobHeader) == 64, "the header is documented as 64 bytes");

uint64_t header_hash(const BlobHeader & header) { return XXH64(&header, offsetof(BlobHeader, header_xxh64), 0); }

BlobHeader describe(const Context & context) {
    const syrinx_context_params & p = context.params();
    BlobHeader header = {};
    std::memcpy(header.magic, kBlobMagic, sizeof kBlobMagic);
    header.fingerprint = context.model().facts().fingerprint;
    header.n_past = context.n_past();
    header.n_seq_max = p.n_seq_max;
    header.n_batch = p.n_batch;
    header.type_k = static_cast<uint8_t>(p.type_k);
    header.type_v = static_cast<uint8_t>(p.type_v);
    header.flash_attention = p.flash_attention != 0;
    header.kv_unified = p.kv_unified != 0;
    header.full_swa = p.full_swa != 0;
    return header;
}

BlobHeader read_header(const uint8_t * blob, size_t size) {
    BlobHeader header;
    if (size < sizeof header || std::memcmp(blob, kBlobMagic, sizeof kBlobMagic) != 0) {
        fail(SYRINX_ERR_BAD_STATE, "this is no sequence state of ours (%zu bytes, no SYRXSEQ1 header)", size);
    }
    std::memcpy(&header, blob, sizeof header);
    if (header.header_xxh64 != header_hash(header)) {
        fail(SYRINX_ERR_BAD_STATE, "the sequence state's header is damaged (checksum)");
    }
    if (header.payload_bytes != size - sizeof header) {
        fail(SYRINX_ERR_BAD_STATE, "the sequence state is cut: %llu bytes of payload expected, %zu there",
             static_cast<unsigned long long>(header.payload_bytes), size - sizeof header);
    }
    if (header.payload_xxh64 != XXH64(blob + sizeof header, header.payload_bytes, 0)) {
        fail(SYRINX_ERR_BAD_STATE, "the sequence state's payload is damaged (checksum)");
    }
    return header;
}

void require_equal(const char * setting, int from, int to) {
    if (from != to) {
        fail(SYRINX_ERR_INCOMPATIBLE,
             "%s differs: the state was made with %d, this context has %d; open both with "
             "the same",
             setting, from, to);
    }
}

void require_compatible(const BlobHeader & from, const Context & context) {
    const BlobHeader to = describe(context);
    if (from.fingerprint != to.fingerprint) {
        fail(SYRINX_ERR_INCOMPATIBLE,
             "the state belongs to other weights (fingerprint %016llx, this model has "
             "%016llx)",
             static_cast<unsigned long long>(from.fingerprint), static_cast<unsigned long long>(to.fingerprint));
    }
    require_equal("type_k", from.type_k, to.type_k);
    require_equal("type_v", from.type_v, to.type_v);
    require_equal("flash_attention (which decides the layout of V)", from.flash_attention, to.flash_attention);
    require_equal("n_seq_max", from.n_seq_max, to.n_seq_max);
    require_equal("kv_unified", from.kv_unified, to.kv_unified);
    const bool windowed = context.model().facts().n_swa > 0;
    if (windowed) {
        require_equal("full_swa", from.full_swa, to.full_swa);
        require_equal("n_batch (a sliding-window cache holds the window plus a batch)", from.n_batch, to.n_batch);
    }
    if (from.n_past > context.n_ctx()) {
        fail(SYRINX_ERR_INCOMPATIBLE, "the state holds %d positions, this context only %d", from.n_past,
             context.n_ctx());
    }
}

class Stopwatch {
public:
    // Milliseconds since construction or the last lap.
    double lap() {
        const auto now = std::chrono::steady_clock::now();
        const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
        last_ = now;
        return ms;
    }

private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

std::vector<uint8_t> Context::save_state() {
    AbortGuard guard;
    BlobHeader header = describe(*this);
    header.payload_bytes = llama_state_seq_get_size(context_, kSequence);
    std::vector<uint8_t> blob(sizeof header + header.payload_bytes);
    uint8_t * payload = blob.data() + sizeof header;
    const size_t written = llama_state_seq_get_data(context_, payload, header.payload_bytes, kSequence);
    if (written != header.payload_bytes) {
        fail(SYRINX_ERR_INTERNAL, "llama.cpp wrote %zu bytes of sequence state where it had announced %llu", written,
             static_cast<unsigned long long>(header.payload_bytes));
    }
    header.payload_xxh64 = XXH64(payload, header.payload_bytes, 0);
    header.header_xxh64 = header_hash(header);
    std::memcpy(blob.data(), &header, sizeof header);
    return blob;
}

void Context::load_state(const uint8_t * blob, size_t size) {
    const BlobHeader header = read_header(blob, size);
    require_compatible(header, *this);
    ErrorCapture errors;
    AbortGuard guard;
    // An empty cache fills from its first cell, so that attention sums in the same order as in the sending context.
    reset();
    const size_t read = llama_state_seq_set_data(context_, blob + sizeof header, header.payload_bytes, kSequence);
    if (read != header.payload_bytes) {
        reset();
        fail(SYRINX_ERR_INTERNAL, "llama.cpp refused a verified sequence state (%s); the context was emptied",
             errors.text("no reason was logged").c_str());
    }
    n_past_ = header.n_past;
}

syrinx_handover_report hand_over(Context & from, Context & to) {
    syrinx_handover_report report = {};
    report.struct_size = sizeof report;
    Stopwatch watch;
    // Refused before anything is copied; what load_state checks again costs nothing beside the copy.
    require_compatible(describe(from), to);
    const std::vector<uint8_t> blob = from.save_state();
    report.save_ms = watch.lap();
    to.load_state(blob.data(), blob.size());
    report.load_ms = watch.lap();
    report.bytes = blob.size();
    report.n_past = to.n_past();
    return report;
}

}  // namespace syrinx
