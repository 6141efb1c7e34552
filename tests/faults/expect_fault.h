// EXPECT_FAULT: a program ended with an exit code and one line on stderr that names what is wrong.
#pragma once

#include "tests/support/tiny_run.h"

// Errors found before anything begins: nothing else is on stderr or stdout.
#define EXPECT_FAULT(result_expression, expected_code, part)                                 \
  do {                                                                                       \
    const ::quire::test::ProgramResult fault_result = (result_expression);                   \
    EXPECT_EQ(fault_result.code, expected_code) << fault_result.err;                         \
    EXPECT_EQ(fault_result.out, "");                                                         \
    EXPECT_EQ(fault_result.err.rfind("quire: error: ", 0), 0U) << fault_result.err;          \
    EXPECT_EQ(fault_result.err.find('\n'), fault_result.err.size() - 1) << fault_result.err; \
    EXPECT_NE(fault_result.err.find(part), std::string::npos) << fault_result.err;           \
  } while (false)
