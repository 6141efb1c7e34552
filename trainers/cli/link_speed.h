// Speeds of links on the command line: "400Gb/s,14us", bandwidth and latency.
#pragma once

#include <string>

#include "trainers/plan/scaling.h"

namespace quire {

// For Option::check: what is wrong with a text; empty when nothing is.
std::string link_complaint(const std::string& text);
std::string latency_complaint(const std::string& text);

// Of texts without a complaint.
Link read_link(const std::string& text);
double read_latency(const std::string& text);  // s

}  // namespace quire
