// Documents that end with a question (data/tasks/question.h) and its answer, at a chosen length in tokens:
//
//   BOS [filler] PROMPT ANSWER [filler that does not count]
//
// The prompt has as many units as fit. With config.align above 1 the last token of the
// prompt is the first position of a chunk, and filler stands before the prompt; elsewhere the prompt begins the
// document. A document is in memory as a whole.
#pragma once

#include "data/tasks/asked_document.h"
#include "data/tasks/question.h"
#include "data/tasks/task.h"

namespace quire {

enum class QuestionUse {
  training,  // the answer has just the tokens that it needs
  asking,    // the published number of tokens is kept for a reply
};

class QuestionTask : public AskingTask {
 public:
  // Throws Error(config), beginning with `where`, when the tokenizer cannot write the questions or a length is too
  // short.
  QuestionTask(const TaskConfig& config, const TaskSources& sources, QuestionUse use, const std::string& where);

  std::unique_ptr<TaskDocument> document(int64_t index) const override { return ask(index); }
  // Throws Error(data) when the filler has no words.
  std::unique_ptr<AskedDocument> ask(int64_t index) const override;

 private:
  struct Fitted;
  Fitted fit(const DocumentKey& key, int64_t positions) const;
  Fitted written(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const;
  int64_t tail(size_t answer) const;
  int64_t shortest() const;
  void require_text(const std::string& where) const;
  std::unique_ptr<AskedDocument> lay_out(Fitted fitted, const DocumentKey& key, int64_t positions) const;

  const Tokenizer& tokenizer_;
  const Filler& filler_;
  QuestionUse use_;
  std::unique_ptr<QuestionKind> kind_;
};

}  // namespace quire
