// Statements of a program that has a module, options and loaders.
void run(int argc, char** argv) {
  [[maybe_unused]] auto options =
      levin::parse<levin::TrainerOptions>(argc, argv, {.enable_progress_bar = false});
  [[maybe_unused]] auto module = std::make_shared<given::Classifier>();
  [[maybe_unused]] auto net = given::net();
  [[maybe_unused]] auto loader = given::loader();
  [[maybe_unused]] auto val_loader = given::loader();
  // LISTING
}
