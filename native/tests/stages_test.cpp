#include "backbone/stages.h"

#include <doctest/doctest.h>

#include "core/error.h"

using namespace syrinx;

TEST_SUITE_BEGIN("stages");

TEST_CASE("tensor names become stage names, and nothing else does") {
    CHECK(stage_of_tensor("embd") == "embeds");
    CHECK(stage_of_tensor("inp_scaled") == "embeds");
    CHECK(stage_of_tensor("model.input_embed") == "embeds");
    CHECK(stage_of_tensor("model.embed_tokens") == "embeds");
    CHECK(stage_of_tensor("l_out-12") == "layer.12.hidden");
    CHECK(stage_of_tensor("result_norm") == "hidden");
    CHECK(stage_of_tensor("result_output") == "logits");
    for (const char * other : {"l_out-", "l_out-3 (view)", "l_out-x", "l_outer-1", "embd_x", "", "Qcur-1"}) {
        CHECK_MESSAGE(stage_of_tensor(other) == "", other);
    }
}

TEST_CASE("a stage list is checked against the model's layers") {
    const StageSet some("embeds,layer.1.hidden", 2);
    CHECK(some.contains("embeds"));
    CHECK(some.contains("layer.1.hidden"));
    CHECK_FALSE(some.contains("layer.0.hidden"));
    CHECK_FALSE(some.contains("logits"));
    const StageSet all("all", 2);
    for (const char * name : {"embeds", "layer.0.hidden", "layer.1.hidden", "hidden", "logits"}) {
        CHECK_MESSAGE(all.contains(name), name);
    }
    CHECK_FALSE(all.contains("layer.2.hidden"));
    for (const char * bad : {"", "nonsense", "embeds,", "layer.2.hidden", "embeds;logits"}) {
        CHECK_THROWS_AS_MESSAGE(StageSet(bad, 2), Error, bad);
    }
}

TEST_SUITE_END();
