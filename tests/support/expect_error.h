// EXPECT_ERROR: a statement throws quire::Error of one kind, and its message contains a text.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

#define EXPECT_ERROR(statement, expected_kind, part)                                                       \
  do {                                                                                                     \
    try {                                                                                                  \
      statement;                                                                                           \
      ADD_FAILURE() << "no error from " #statement;                                                        \
    } catch (const ::quire::Error& thrown) {                                                               \
      EXPECT_EQ(thrown.kind(), expected_kind) << thrown.what();                                            \
      EXPECT_NE(std::string(thrown.what()).find(part), std::string::npos) << "message: " << thrown.what(); \
    }                                                                                                      \
  } while (false)
