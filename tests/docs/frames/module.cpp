// Members of a levin::Module with a `net`; those that a listing leaves out are Base's.
struct Base : levin::Module {
  torch::nn::Sequential net = register_module("net", given::net());

  torch::Tensor loss_of(const levin::Batch& batch) {
    return torch::nn::functional::cross_entropy(net->forward(batch["image"]), batch["label"]);
  }
  torch::Tensor training_step(const levin::Batch& batch) override { return loss_of(batch); }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_acc", levin::metrics::accuracy(net->forward(batch["image"]), batch["label"]));
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

struct Mine : Base {
  // LISTING
};

void run(int, char**) {
  for (const char* compile : {"no", "replay"}) {
    levin::Trainer trainer(
        {.max_epochs = 2, .enable_progress_bar = false, .engine = {.compile = compile}});
    auto module = std::make_shared<Mine>();
    const auto before = given::copies(*module->net);
    trainer.fit(module, given::loader(), given::loader());
    given::check_trained(before, *module->net);
  }
}
