// The form of what a row carries of blocks and chunks, as checkpoints store it: the parts of a row in the order of
// their bytes, and the counts beside them. Runs go on from checkpoints of this form, so that a change of it is a break:
// give runs that have the old one a way to read it, or say in the message of the error how they go on.
#include <gtest/gtest.h>

#include "layers/state/state_pool.h"
#include "trainers/setup/model.h"

namespace quire::test {
namespace {

constexpr const char* kModel = R"(
data: {subsequence: 6, rows: 2}
model: {width: 8, layers: 2, heads: 2, key_heads: 1, mlp: {hidden: 8}, position: {kind: rope}}
)";

// Parts as "type name shape", then the names of counts.
std::vector<std::string> form_of(const std::vector<std::string>& options) {
  const RunConfig config = parse_config<RunConfig>(kModel, "model.yaml", options);
  ParameterStore store;
  const Network network(store, config.model, 11, DType::bf16);
  const StatePool pool(network.declared.state, 2, config.data.subsequence, DType::bf16, kMeta);
  std::vector<std::string> form;
  for (const RowPart& part : pool.row_parts()) {
    form.push_back(fmt::format("{} {} {}", name_of(part.dtype), part.name, part.shape.to_string()));
  }
  for (const NamedTensor& count : pool.save_counts()) form.push_back(count.name);
  return form;
}

// Keys lie rotated by their places in the block, the one that the document has begun in the tail.
std::vector<std::string> form_of_blocks(const std::string& stored) {
  const std::string path = "blocks.0.attention.";
  std::vector<std::string> form{"bf16 " + path + "tail.keys.ring [9, 1, 4]",
                                "bf16 " + path + "tail.values.ring [9, 1, 4]"};
  for (const std::string vectors : {"keys", "values"}) {
    form.push_back(stored + " " + path + "blocks." + vectors + ".ring [5, 4, 1, 4]");
    if (stored == "i8") form.push_back("bf16 " + path + "blocks." + vectors + ".scale.ring [5, 4, 1]");
  }
  form.push_back("bf16 " + path + "index.keys.ring [5, 1, 4]");
  for (const char* group : {"tail", "blocks", "index"}) {
    for (const char* count : {".head", ".length", ".written"}) form.push_back(path + group + count);
  }
  return form;
}

TEST(StateForm, OfLandmarks) {
  EXPECT_EQ(form_of({"model.attention={kind: landmark, landmark: {block: 3, top_k: 2, carry: {length: 5, in_training: "
                     "true, dtype: f32}}}",
                     "model.layers=1"}),
            form_of_blocks("f32"));
}

TEST(StateForm, OfMobaBlocks) {
  EXPECT_EQ(form_of({"model.attention={kind: moba, moba: {block: 4, top_k: 3, carry: {length: 5}}}", "model.layers=1"}),
            form_of_blocks("bf16"));
}

TEST(StateForm, OfBlocksWithScales) {
  EXPECT_EQ(form_of({"model.attention={kind: moba, moba: {block: 4, top_k: 3, carry: {length: 5, dtype: int8}}}",
                     "model.layers=1"}),
            form_of_blocks("i8"));
}

TEST(StateForm, OfChunks) {
  std::vector<std::string> form{"i32 stack.groups.0.ages.value [2]",
                                "f32 stack.groups.0.weights.value [2]",
                                "bf16 stack.tail.states.ring [9, 8]",
                                "bf16 stack.chunks.keys.ring [6, 3, 1, 4]",
                                "bf16 stack.chunks.values.ring [6, 3, 1, 4]",
                                "bf16 stack.index.landmarks.ring [6, 8]",
                                "i32 stack.begun.tokens.ring [9, 1]",
                                "i32 stack.words.tokens.ring [6, 3]",
                                "stack.groups.0.ages.empty",
                                "stack.groups.0.weights.empty"};
  for (const char* group : {"tail", "chunks", "index", "begun", "words"}) {
    for (const char* count : {".head", ".length", ".written"}) form.push_back(std::string("stack.") + group + count);
  }
  EXPECT_EQ(form_of({"model.stack={kind: drt, drt: {chunk: 3, top_k: 2, groups: 1, scores: bm25, key_heads: 1, carry: "
                     "{length: 5, in_training: true}}}"}),
            form);
}

}  // namespace
}  // namespace quire::test
