// Documents of filler in which needles are hidden, with a question and its answer at the end. Any part can be asked
// for, so that documents of millions of tokens are never in memory.
//
//   BOS filler NEEDLE filler ... filler QUESTION ANSWER [filler that does not count]
//
// With config.align above 1 the last token of the question is the first position of the document's last chunk, and the
// two last chunks hold no needle: a model that retrieves at the end of every chunk has then read the question.
#pragma once

#include "data/tasks/asked_document.h"
#include "data/tasks/needle_scene.h"

namespace quire {

class NeedleDocument : public AskedDocument {
 public:
  // `offsets`: how many tokens of filler precede each needle of the scene.
  NeedleDocument(NeedleScene scene, std::vector<int64_t> offsets, int64_t length, int64_t tail, TaskLoss loss,
                 std::unique_ptr<FillerText> filler);

  NeedleDocument(const NeedleDocument&) = delete;
  NeedleDocument& operator=(const NeedleDocument&) = delete;

  int64_t length() const override { return length_; }
  void tokens(int64_t begin, int64_t count, int32_t* out) const override;
  void marks(int64_t begin, int64_t count, uint8_t* out) const override;

  int64_t answer_begin() const override { return answer_begin_; }
  const std::vector<int32_t>& answer() const override { return scene_.answer; }
  int64_t scored() const override { return scene_.scored; }
  int64_t needle_begin() const { return needle_begin_; }  // begin of the needle that the question asks for

 private:
  struct Part {
    int64_t begin = 0;
    const std::vector<int32_t>* ids = nullptr;  // nullptr: filler from `place` on
    int64_t place = 0;
  };

  NeedleScene scene_;
  int64_t length_;
  TaskLoss loss_;
  std::unique_ptr<FillerText> filler_;
  std::vector<Part> parts_;  // sorted by begin
  int64_t answer_begin_ = 0;
  int64_t needle_begin_ = 0;
};

class NeedleTask : public AskingTask {
 public:
  NeedleTask(const TaskConfig& config, const TaskSources& sources, const std::string& where);
  std::unique_ptr<TaskDocument> document(int64_t index) const override { return needle(index); }
  std::unique_ptr<AskedDocument> ask(int64_t index) const override { return needle(index); }
  std::unique_ptr<NeedleDocument> needle(int64_t index) const;
  // Returns the number of positions of the shortest possible document.
  int64_t min_positions() const;

 private:
  int64_t tail() const;  // number of positions from the question's last token on

  const Filler& filler_;
  std::unique_ptr<NeedleKind> kind_;
};

}  // namespace quire
