// Statements beside files of torch.export, which stand in for those of Python.
void run(int, char**) {
  for (const char* file : {"net.pt2", "net_eval.pt2", "vae.pt2"}) given::write_exported(file);
  given::write_exported_weights("model.safetensors");
  levin::Accelerator accelerator;
  [[maybe_unused]] auto loader = given::loader();
  // LISTING
}
