// A loop of one's own over `net` and `my_loader`, which trains the network.
void run(int, char**) {
  auto net = given::net();
  auto my_loader = given::loader();
  const auto before = given::copies(*net);
  // LISTING
  given::check_trained(before, *net);
}
