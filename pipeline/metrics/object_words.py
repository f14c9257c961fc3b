"""Words for everyday objects, animals and people: COCO's categories without skis and orange, and further objects.

Four groups are omitted. Words that are often verbs or colours (swing, ski, orange) are ambiguous. Nouns for more than
one category (vehicle, animal, food) are ambiguous, too. Only some captions mention places and ground (street, grass).
Captions mention the camera because people look into it, but the image does not show it.
"""

from __future__ import annotations

_SYNONYMS = """
    person, people, man, men, woman, women, boy, girl, child, children, kid, baby, toddler, infant,
        lady, guy, gentleman, gentlemen, adult, teenager, teen, mother, father, mom, dad, daughter,
        brother, sister, crowd, family, player, skier, surfer, rider, biker, skateboarder, skater,
        snowboarder, cyclist, bicyclist, motorcyclist, climber, hiker, swimmer, runner, racer, wrestler, dancer,
        musician, guitarist, singer, performer, worker, policeman, policemen, police officer, officer, fireman,
        firemen, firefighter, soldier, cowboy, bride, groom, chef, waiter, waitress, batter, pitcher, catcher,
        umpire, referee, goalie, goalkeeper, spectator, onlooker, pedestrian, commuter, tourist, student,
        friend, someone, somebody, fisherman, fishermen, businessman, businessmen, jogger, skydiver, diver;
    dog, puppy, pup, doggy, hound, greyhound, poodle, retriever, golden retriever, labrador, lab,
        terrier, bulldog, collie, shepherd, german shepherd, dachshund, chihuahua, beagle, husky,
        dalmatian, pug, baby dog, adult dog;
    cat, kitten, kitty, tabby, baby cat, adult cat;
    horse, pony, foal, colt, mare, stallion, baby horse, adult horse;
    cow, cattle, calf, bull, ox, oxen, steer, baby cow, adult cow;
    sheep, lamb, ram, ewe, baby sheep, adult sheep;
    goat, baby goat;
    pig, piglet, hog;
    elephant, baby elephant, adult elephant;
    bear, cub, panda, panda bear, polar bear, grizzly, black bear, brown bear, baby bear, adult bear;
    zebra, baby zebra, adult zebra;
    giraffe, baby giraffe, adult giraffe;
    lion, lioness;
    tiger;
    monkey, ape, gorilla, chimpanzee;
    deer, elk, moose, antelope, gazelle;
    camel;
    donkey, mule;
    rabbit, bunny;
    squirrel;
    fox;
    mouse, mice, rat, hamster, computer mouse;
    fish;
    dolphin;
    shark;
    turtle, tortoise;
    frog, toad;
    snake;
    lizard;
    butterfly, moth;
    bird, pigeon, seagull, gull, parrot, owl, eagle, hawk, crow, sparrow, pelican, ostrich, flamingo, peacock,
        swan, penguin, heron, finch, robin, cardinal, baby bird, adult bird;
    duck, duckling, goose, geese, mallard;
    chicken, hen, rooster, turkey;
    bicycle, bike, tricycle, mountain bike;
    unicycle;
    motorcycle, motorbike, motor bike, dirt bike, moped;
    scooter;
    car, sedan, taxi, cab, minivan, suv, jeep, van, automobile, race car, convertible;
    bus, double decker, minibus, coach bus;
    truck, lorry, pickup, semi, fire truck, firetruck, pickup truck, tow truck;
    train, locomotive, passenger train, tram, trolley, streetcar;
    airplane, plane, aeroplane, aircraft, airliner, jet, air plane, passenger jet, passenger plane;
    helicopter;
    boat, sailboat, ship, yacht, ferry, barge, rowboat, speedboat, raft;
    canoe, kayak;
    tractor;
    ambulance;
    wagon, carriage;
    stroller;
    wheelchair;
    cart, shopping cart;
    sled, sleigh, sledge, toboggan;
    tire;
    traffic light, stoplight, stop light, traffic signal;
    street light, streetlight, lamppost, street lamp;
    fire hydrant, hydrant;
    sign, stop sign, street sign, road sign, billboard;
    parking meter, meter;
    mailbox;
    bench, park bench;
    fence, railing;
    ladder;
    stair, staircase, stairway, stairwell;
    pole, post;
    rock, boulder;
    log;
    net;
    bridge;
    tower;
    house, cottage, cabin;
    building, skyscraper;
    barn, shed;
    church, cathedral;
    tent, canopy;
    lighthouse;
    fountain;
    statue, sculpture;
    flag, banner;
    trampoline;
    hammock;
    chair, stool, armchair, seat, rocking chair;
    couch, sofa, loveseat;
    bed, mattress;
    crib;
    table, desk, coffee table, dining table, picnic table, countertop;
    cabinet, cupboard, drawer, dresser;
    shelf, bookshelf, bookcase;
    toilet, urinal, commode, toilet seat;
    bathtub, tub, bath tub;
    shower;
    sink, basin;
    mirror;
    window;
    door, doorway;
    curtain, drape, shower curtain;
    pillow, cushion;
    blanket, quilt, comforter;
    towel;
    rug, carpet, mat;
    lamp, chandelier, lantern;
    candle;
    clock, wristwatch;
    vase;
    potted plant, houseplant, plant;
    flower, rose, tulip, daisy, sunflower, bouquet;
    tree, palm tree, pine tree, christmas tree;
    bush, shrub;
    television, tv, television set, tv set;
    laptop, laptop computer, notebook computer;
    computer, monitor, desktop computer, computer screen;
    keyboard, computer keyboard;
    remote, remote control, game controller, wii controller;
    cell phone, cellphone, mobile phone, phone, smartphone, telephone;
    microphone;
    radio, stereo;
    headphones, headphone, earphone;
    microwave, microwave oven;
    oven, stove, stovetop, stove top oven;
    toaster;
    refrigerator, fridge, freezer;
    dishwasher;
    blender;
    kettle, teapot;
    fork;
    knife;
    spoon, ladle;
    chopstick;
    plate, platter, saucer;
    bowl;
    cup, mug, coffee cup, teacup;
    wine glass, wineglass, goblet;
    bottle, water bottle, wine bottle;
    jar;
    pan, skillet, wok;
    tray;
    basket;
    bucket, pail;
    box, carton, crate;
    trash can, garbage can, dumpster, trash bin;
    pizza;
    sandwich, burger, hamburger, cheeseburger, panini;
    hot dog, hotdog;
    cake, cupcake, birthday cake;
    donut, doughnut;
    cookie, biscuit;
    pie;
    bread, toast, bagel, baguette;
    salad;
    soup;
    rice;
    pasta, spaghetti, noodle;
    cheese;
    egg;
    meat, steak, bacon, ham;
    french fry, fries;
    ice cream;
    apple;
    banana;
    strawberry;
    grape;
    lemon, lime;
    tomato;
    potato;
    carrot;
    broccoli;
    onion;
    pumpkin;
    wine;
    beer;
    coffee;
    backpack, knapsack, rucksack;
    handbag, purse, pocketbook;
    bag, tote, paper bag, plastic bag;
    suitcase, luggage, briefcase, suit case;
    umbrella, parasol;
    hat, cap, beanie, cowboy hat, baseball cap, sombrero;
    helmet;
    scarf;
    glove, mitten;
    tie, necktie, bow tie, bowtie;
    shirt, tshirt, t shirt, tee shirt, blouse, jersey, tank top;
    sweater, sweatshirt, hoodie, pullover;
    jacket, coat, parka, raincoat;
    vest, life vest, life jacket;
    dress, gown, wedding dress;
    skirt, kilt;
    pants, trousers, jeans;
    shorts;
    suit, tuxedo;
    swimsuit, bikini, bathing suit, swim trunks;
    wetsuit, wet suit;
    shoe, sneaker, sandal, flip flop;
    boot;
    sock;
    glasses, sunglasses, goggle, eyeglasses;
    mask;
    necklace;
    bracelet;
    wig;
    leash;
    collar;
    stick, twig;
    rope;
    hose, garden hose;
    ball, soccer ball, tennis ball, basketball, volleyball, beach ball, sports ball, baseball, football;
    baseball bat, bat;
    baseball glove, mitt, baseball mitt, catcher's mitt;
    tennis racket, racket, racquet, tennis racquet;
    hockey stick;
    golf club;
    frisbee, flying disc;
    skateboard, skate board, longboard;
    snowboard;
    surfboard, surf board, boogie board, bodyboard;
    kite;
    balloon, hot air balloon;
    parachute;
    hula hoop;
    teddy bear, teddy, stuffed bear, stuffed animal;
    doll;
    toy;
    book, textbook, novel;
    newspaper, magazine;
    pen, pencil, marker;
    paintbrush, paint brush;
    scissors, scissor;
    toothbrush;
    hair dryer, hair drier, hairdryer, blow dryer;
    comb, hairbrush;
    broom, mop;
    shovel;
    hammer;
    gun, rifle, pistol;
    sword;
    guitar, banjo, ukulele;
    piano;
    violin, fiddle, cello;
    drum;
    trumpet, trombone, tuba;
    flute, saxophone, clarinet;
    cigarette, cigar
"""
SYNONYMS = [[" ".join(phrase.split()) for phrase in each.split(",")] for each in _SYNONYMS.split(";")]
OBJECTS = {phrase: phrases[0] for phrases in SYNONYMS for phrase in phrases}
"""Words and phrases of at most three words, with their object's name, which is its first word or phrase.

Listed plurals are those that `chair.PLURALS` does not reduce to a listed singular, and pairs such as scissors.
"""
