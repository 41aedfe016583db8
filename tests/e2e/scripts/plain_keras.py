"""An ordinary Keras 3 script: one line of it, `model.fit(...)`, became `elastic.fit(model, ...)`."""

from pathlib import Path

import keras
import numpy as np

import elastic

EPOCHS = 6
DIGITS = Path(elastic.__file__).parent / "examples" / "data" / "mnist_6k.npz"

with np.load(DIGITS) as digits:
    x_train, y_train = digits["x_train"][..., np.newaxis] / np.float32(255), digits["y_train"]
    x_test, y_test = digits["x_test"][..., np.newaxis] / np.float32(255), digits["y_test"]

inputs = keras.Input((28, 28, 1))
x = keras.layers.Conv2D(16, 3, activation="relu")(inputs)
x = keras.layers.MaxPooling2D()(x)
x = keras.layers.Conv2D(16, 3, activation="relu")(x)
x = keras.layers.MaxPooling2D()(x)
x = keras.layers.Flatten()(x)
x = keras.layers.Dropout(0.2)(x)
outputs = keras.layers.Dense(10, activation="softmax")(x)
model = keras.Model(inputs, outputs)
model.compile(optimizer=keras.optimizers.Adam(2e-3), loss="sparse_categorical_crossentropy", metrics=["accuracy"])

history = elastic.fit(
    model,
    x_train,
    y_train,
    epochs=EPOCHS,
    batch_size=64,
    validation_data=(x_test, y_test),
    callbacks=[
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=EPOCHS),
        keras.callbacks.CSVLogger("history.csv"),
    ],
)

_, accuracy = model.evaluate(x_test, y_test, verbose=0)
print(f"test accuracy: {accuracy:.4f}", flush=True)
