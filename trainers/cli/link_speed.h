// Speeds of links on the command line: "400Gb/s,14us", bandwidth and latency.
#pragma once

#include <string>

#include "trainers/plan/scaling.h"

namespace quire {

// For Option::check: return the fault of a text; empty when there is none.
std::string link_complaint(const std::string& text);
std::string latency_complaint(const std::string& text);

// Parse texts without a fault.
Link read_link(const std::string& text);
double read_latency(const std::string& text);  // s

}  // namespace quire
