// The `tensortap` program.
#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // A closed pipe (`| head`) shows as a failed write, which run_program ends quietly on.
  std::signal(SIGPIPE, SIG_IGN);
  return tensortap::run_program(argc, argv);
}
