// The subcommands. Each returns what goes to stdout as JSON.
#pragma once

#include "session.h"

Json run_info(int argc, char ** argv);
Json run_check(int argc, char ** argv);
Json run_run(int argc, char ** argv);
Json run_bench(int argc, char ** argv);
Json run_parity(int argc, char ** argv);
